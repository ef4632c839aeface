// Root cause: a killed engine's socket takes connections until the kernel has cleared the process away, and the host
// called those requests crashed, or refused them, though nobody had begun them and the next engine was on its way.
import { readFileSync, rmSync } from "node:fs";
import path from "node:path";
import { afterEach, beforeEach, describe, expect, it } from "vitest";
import { FakeEdge } from "../support/fake-edge.ts";
import { HostProcess, until } from "../support/host-process.ts";

const body = JSON.stringify({ model: "sim", messages: [{ role: "user", content: "hello there" }], max_tokens: 8 });

describe("requests while an engine starts again", () => {
  let edge: FakeEdge;
  let host: HostProcess;

  beforeEach(async () => {
    edge = await FakeEdge.start({ host: "gpu-1" });
    host = await HostProcess.start(edge, { models: [{ name: "sim", engine: "sim", slots: 32, max_pending: 100 }] });
    await until("a replica is ready", () => edge.lastReport?.replicas[0]?.state === "ready");
  });
  afterEach(async () => {
    await host.stop();
    await edge.stop();
  });

  const ask = async (requestId = edge.newRequestId()): Promise<Response> =>
    host.request(await edge.sign({ body, requestId }), body);

  it("are answered by the next one after a kill, each once, whenever they came", async () => {
    const ids = Array.from({ length: 60 }, () => edge.newRequestId());
    const tokens = await Promise.all(ids.map((requestId) => edge.sign({ body, requestId })));
    process.kill(host.enginePids()[0] ?? 0, "SIGKILL");
    const answers: Promise<number>[] = [];
    for (const token of tokens) {
      answers.push(host.request(token, body).then(({ status }) => status));
      await new Promise((resolve) => setTimeout(resolve, 5));
    }
    const statuses = await Promise.all(answers);
    expect(statuses.filter((status) => status !== 200)).toEqual([]);
    await until("all are reported", () => edge.ended.length >= ids.length);
    expect(edge.ended.map(({ outcome, exactness }) => `${outcome} ${exactness}`)).toEqual(
      ids.map(() => "completed exact"),
    );
  });

  it("are answered after the sockets' folder was taken away", async () => {
    rmSync(readFileSync(path.join(host.folder, "data/run-folder"), "utf8"), { recursive: true });
    expect((await ask()).status).toBe(200);
    expect((await ask()).status).toBe(200);
  });
});
