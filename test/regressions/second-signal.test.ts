// Root cause: after a cut request the edge waited for its machine's report with a timer that nobody cleared, so the
// process stayed; and Node took its signal handlers away before it exited, so a signal in between ended it by itself.
import { spawn } from "node:child_process";
import { existsSync } from "node:fs";
import path from "node:path";
import { afterEach, describe, expect, it } from "vitest";
import { FakeEdge } from "../support/fake-edge.ts";
import { HostProcess, isAlive } from "../support/host-process.ts";
import { REPOSITORY } from "../support/source-tree.ts";
import { Stack, until } from "../support/stack.ts";
import { temporaryFolder } from "../support/temporary-folder.ts";

const stream = {
  model: "sim",
  messages: [{ role: "user", content: "Count." }],
  stream: true,
  max_tokens: 5_000,
  ignore_eos: true,
};

describe("a second signal", () => {
  let stack: Stack | null = null;
  afterEach(async () => {
    await stack?.stop();
    stack = null;
  });

  it("ends an edge that answers from a host, with an error as the stream's last event", async () => {
    stack = await Stack.start({
      host: { models: [{ name: "sim", engine: "sim", sim: { tokens_per_second: 50 } }], drain_timeout: "1s" },
    });
    const response = await stack.request("/chat/completions", stream);
    expect(response.status).toBe(200);
    const text = response.text();
    const ended = stack.end("edge", "SIGTERM");
    await until("it drains", () => stack?.log.some((line) => line.includes("draining")) === true);
    void stack.end("edge", "SIGTERM");
    expect(await ended).toBe(0);
    const events = (await text).trim().split("\n\n");
    expect(events.length).toBeGreaterThan(1);
    expect(JSON.parse(events.at(-1)?.slice("data: ".length) ?? "")).toMatchObject({ error: { code: "draining" } });
  });

  it("that comes while an idle edge takes itself down does not change how it ends", async () => {
    const { folder, remove } = temporaryFolder();
    const program = path.join(REPOSITORY, "dist/edge/node/main.js");
    const edge = spawn(process.execPath, [program, "serve", "--data", folder], {
      stdio: ["ignore", "pipe", "pipe"],
      env: { ...process.env, STEERAGE_LISTEN: "127.0.0.1:0", STEERAGE_ADMIN_LISTEN: "127.0.0.1:0" },
    });
    const exited = new Promise((resolve) => edge.once("exit", (code, signal) => resolve(code ?? signal)));
    edge.stderr.setEncoding("utf8").on("data", (chunk: string) => {
      // From here on the process only takes itself down.
      if (chunk.includes("has stopped"))
        for (let more = 0; more < 50; more++) setTimeout(() => edge.kill("SIGTERM"), more);
    });
    await new Promise((resolve) => edge.stdout.once("data", resolve));
    edge.kill("SIGTERM");
    expect(await exited).toBe(0);
    remove();
  });

  it("ends a host that answers, and its engine with it", async () => {
    const edge = await FakeEdge.start({ host: "gpu-1" });
    const host = await HostProcess.start(edge, { drain_timeout: "30s" });
    try {
      await until("a replica is ready", () => edge.lastReport?.replicas[0]?.state === "ready");
      const body = JSON.stringify({ ...stream, sim: { tokens_per_second: 50 } });
      const answer = await host.request(await edge.sign({ body }), body);
      expect(answer.status).toBe(200);
      const [text, engines, pid] = [answer.text().catch(() => "cut"), host.enginePids(), host.pid];
      const ended = host.end("SIGTERM");
      await until("it drains", () => edge.lastReport?.draining === true);
      process.kill(pid, "SIGTERM");
      expect(await ended).toEqual({ code: 0, signal: null });
      expect(engines).toHaveLength(1);
      await until("the engine is gone", () => !engines.some((engine) => isAlive(engine)), 1_000);
      expect(existsSync(path.join(host.folder, "data/lock"))).toBe(false);
      await text;
    } finally {
      await host.stop();
      await edge.stop();
    }
  });
});
