// Root cause: `up` took no lock and wrote over the configuration of a stack that ran from the same folder; and it took
// whatever answered on its metrics port for its own edge.
import { existsSync, readFileSync } from "node:fs";
import path from "node:path";
import { afterAll, beforeAll, describe, expect, it } from "vitest";
import { freePorts, until } from "../support/stack.ts";
import { temporaryFolder } from "../support/temporary-folder.ts";
import { processesOf, UpProcess } from "../support/up-process.ts";

describe("npm run up beside a stack that runs", () => {
  const { folder, remove } = temporaryFolder();
  const data = path.join(folder, "first");
  let ports: number[];
  let first: UpProcess;
  let line: Awaited<ReturnType<UpProcess["ready"]>>;
  beforeAll(async () => {
    ports = await freePorts(4);
    first = await UpProcess.start(data, ports);
    line = await first.ready();
  });
  afterAll(() => {
    for (const pid of processesOf(folder)) process.kill(pid, "SIGKILL");
    remove();
  });

  const ask = (stream: boolean): Promise<Response> =>
    fetch(`${line.base_url}/chat/completions`, {
      method: "POST",
      headers: { "content-type": "application/json", authorization: `Bearer ${line.api_key}` },
      body: JSON.stringify({
        model: line.model,
        messages: [{ role: "user", content: "Tell me a story." }],
        max_tokens: stream ? 900 : 4,
        ignore_eos: true,
        stream,
      }),
    });
  const lastLine = (text: string): string => text.trimEnd().split("\n").at(-1) ?? "";

  it("refuses a folder in use in one line that names the process, and touches nothing in it", async () => {
    const before = readFileSync(path.join(data, "edge.yaml"), "utf8");
    const second = await UpProcess.start(data);
    expect(await second.exited).toBe(1);
    expect(lastLine(second.stderr)).toContain(`${data} is in use by process ${first.pid}`);
    expect(second.stdout).toBe("");
    expect(readFileSync(path.join(data, "edge.yaml"), "utf8")).toBe(before);
    expect((await ask(false)).status).toBe(200);
  });

  it("refuses ports in use in one line, makes no key and leaves nothing running", async () => {
    const other = path.join(folder, "second");
    const second = await UpProcess.start(other, ports);
    expect(await second.exited).toBe(1);
    expect(lastLine(second.stderr)).toContain(`127.0.0.1:${ports[0]}`);
    expect(second.stdout).toBe("");
    expect(existsSync(path.join(other, "demo-key.json"))).toBe(false);
    expect(processesOf(other)).toEqual([]);
  });

  it("ends with 0 and leaves nothing running at two signals during a stream", async () => {
    const stream = await ask(true);
    expect(stream.status).toBe(200);
    const text = stream.text();
    first.signal("SIGTERM");
    await until("it drains", () => first.stderr.includes("draining"));
    first.signal("SIGTERM");
    expect(await first.exited).toBe(0);
    expect(processesOf(folder)).toEqual([]);
    await text;
  });
});
