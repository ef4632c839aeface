import { mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import path from "node:path";
import { afterEach, beforeEach, describe, expect, it } from "vitest";
import { FakeEdge } from "../support/fake-edge.ts";
import { HostProcess, isAlive, until } from "../support/host-process.ts";

const chat = (extra: Record<string, unknown> = {}): string =>
  JSON.stringify({ model: "sim", messages: [{ role: "user", content: "hello there" }], max_tokens: 8, ...extra });
const slowStream = chat({ stream: true, max_tokens: 5_000, ignore_eos: true, sim: { tokens_per_second: 100 } });

describe("the life of a host", () => {
  let edge: FakeEdge;
  let host: HostProcess | null = null;

  beforeEach(async () => {
    edge = await FakeEdge.start({ host: "gpu-1" });
  });
  afterEach(async () => {
    await host?.stop();
    host = null;
    await edge.stop();
  });

  const start = async (config: Readonly<Record<string, unknown>> = {}): Promise<HostProcess> => {
    host = await HostProcess.start(edge, config);
    await until("a replica is ready", () => stateOf("sim") === "ready");
    return host;
  };
  const replicaOf = (id: string) => edge.lastReport?.replicas.find((replica) => replica.id === id);
  const stateOf = (id: string) => replicaOf(id)?.state;
  const endedOf = (requestId: string) => edge.ended.filter(({ request_id }) => request_id === requestId);
  const ask = async (on: HostProcess, body: string, requestId = edge.newRequestId()): Promise<Response> =>
    on.request(await edge.sign({ body, requestId }), body);

  it("fails the requests of a killed engine cleanly, starts it again, and answers the next one (C072)", async () => {
    const running = await start();
    const [streamId, wholeId] = [edge.newRequestId(), edge.newRequestId()];
    const stream = await ask(running, slowStream, streamId);
    const whole = ask(running, chat({ max_tokens: 1_000, ignore_eos: true, sim: { tokens_per_second: 10 } }), wholeId);
    await until("both are in flight", () => replicaOf("sim")?.in_flight === 2);
    // The engine says at least each second what it works on; before that nobody knows that it began.
    await new Promise((resolve) => setTimeout(resolve, 1_000));
    const [engine = 0] = running.enginePids();
    process.kill(engine, "SIGKILL");

    const events = (await stream.text()).trim().split("\n\n");
    expect(JSON.parse(events.at(-1)?.slice("data: ".length) ?? "")).toMatchObject({
      error: { code: "engine_crashed" },
    });
    for (const event of events) expect(() => JSON.parse(event.slice("data: ".length))).not.toThrow();
    const failed = await whole;
    expect([failed.status, failed.headers.get("retry-after")]).toEqual([502, "1"]);

    await until("both are reported", () => endedOf(streamId).length + endedOf(wholeId).length === 2);
    expect(endedOf(streamId)[0]).toMatchObject({ outcome: "failed", exactness: "counted" });
    expect(endedOf(streamId)[0]?.computed_prompt).toBeGreaterThan(0);
    expect(endedOf(streamId)[0]?.computed_completion).toBeGreaterThanOrEqual(events.length - 3);
    await until("the engine is back", () => stateOf("sim") === "ready" && running.enginePids()[0] !== engine);
    expect((await ask(running, chat())).status).toBe(200);
  });

  it("refuses with 503 and Retry-After while the engine's next start is far away (C074)", async () => {
    const running = await start({ restart_base: "30s" });
    process.kill(running.enginePids()[0] ?? 0, "SIGKILL");
    await until("the host knows", () => stateOf("sim") !== "ready");
    const response = await ask(running, chat());
    expect(response.status).toBe(503);
    expect(Number(response.headers.get("retry-after"))).toBeGreaterThanOrEqual(1);
  });

  it("reports a change long before the next heartbeat, under growing numbers", async () => {
    const running = await start({ heartbeat_interval: "5s" });
    edge.reportEveryMs = 5_000;
    const before = edge.reports.length;
    const responses = await Promise.all(Array.from({ length: 4 }, () => ask(running, chat())));
    expect(responses.map(({ status }) => status)).toEqual([200, 200, 200, 200]);
    await until("the change is reported", () => edge.reports.length > before, 2_000);
    const { epoch, seq } = edge.reports[0]?.report ?? { epoch: 0, seq: 0 };
    edge.reports.forEach(({ report }, place) => expect([report.epoch, report.seq]).toEqual([epoch, seq + place]));
  });

  it("repeats ended requests until they are acknowledged, beyond a kill -9 and a line cut short", async () => {
    edge.acknowledge = () => false;
    const running = await start();
    const requestId = edge.newRequestId();
    expect((await ask(running, chat(), requestId)).status).toBe(200);
    await until(
      "it is reported twice",
      () => edge.reports.filter(({ report }) => report.ended.length === 1).length > 1,
    );
    const [engine = 0] = running.enginePids();
    const [first] = endedOf(requestId);
    await running.end("SIGKILL");
    await until("the engine ended with its host", () => !isAlive(engine));
    writeFileSync(path.join(running.folder, "data/ended.ndjson"), '{"ended":{"request_id":"req_to', { flag: "a" });

    edge.reports.length = 0;
    await running.restart();
    await until("it is reported again", () => endedOf(requestId).length > 0);
    expect(endedOf(requestId)[0]).toEqual(first);
    const counters = edge.reports[0]?.report.counters;
    expect(counters).toMatchObject([{ epoch: first?.epoch, requests: 1, computed_completion: 8 }]);

    edge.acknowledge = () => true;
    await until("it is acknowledged", () => edge.lastReport?.ended.length === 0);
    await running.end("SIGKILL");
    edge.reports.length = 0;
    await running.restart();
    await until("the host reports", () => edge.reports.length > 0);
    expect(edge.lastReport?.ended).toEqual([]);
  });

  it("keeps reporting to an edge that was away, and accepts requests in between", async () => {
    const running = await start({ reconnect_base: "50ms", reconnect_max: "200ms" });
    await edge.stop();
    const requestId = edge.newRequestId();
    expect((await ask(running, chat(), requestId)).status).toBe(200);
    await edge.listen();
    await until("the request is reported", () => endedOf(requestId).length > 0);
  });

  it("corrects its clock by the edge's", async () => {
    edge.clockOffsetMs = 3_600_000;
    const running = await start();
    expect((await ask(running, chat())).status).toBe(200);
  });

  it("keeps the key of the first contact and does not take another edge's", async () => {
    const running = await start();
    const stranger = await FakeEdge.start({ host: "gpu-1" });
    try {
      edge.keys = stranger.keys;
      const before = edge.reports.length;
      await until("the host has had the strange key", () => edge.reports.length > before + 1);
      const body = chat();
      expect((await running.request(await stranger.sign({ body }), body)).status).toBe(401);
      expect(running.log.some((line) => line.includes("not trusted"))).toBe(true);
    } finally {
      await stranger.stop();
    }
  });

  it("takes no key but the pinned one", async () => {
    const [key] = edge.keys;
    host = await HostProcess.start(edge, { edge_key_fingerprints: ["some-other-key"] });
    await until("it reports", () => edge.reports.length > 1);
    expect((await ask(host, chat())).status).toBe(401);
    await host.stop();
    edge.reports.length = 0;
    host = await start({ edge_key_fingerprints: [key?.kid] });
    expect((await ask(host, chat())).status).toBe(200);
  });

  it("drains on SIGTERM: running requests finish, new ones get 503, engines end, exit 0", async () => {
    const running = await start();
    const [engine = 0] = running.enginePids();
    const requestId = edge.newRequestId();
    const stream = await ask(
      running,
      chat({ stream: true, max_tokens: 50, ignore_eos: true, sim: { tokens_per_second: 50 } }),
      requestId,
    );
    const end = running.end("SIGTERM");
    await until("draining is reported", () => edge.lastReport?.draining === true);
    expect((await ask(running, chat())).status).toBe(503);
    expect((await stream.text()).endsWith("data: [DONE]\n\n")).toBe(true);
    expect(await end).toEqual({ code: 0, signal: null });
    expect(isAlive(engine)).toBe(false);
    expect(endedOf(requestId)[0]).toMatchObject({ outcome: "completed", exactness: "exact", computed_completion: 50 });
  });

  it("cancels what outlasts the drain and still reports it exactly", async () => {
    const running = await start({ drain_timeout: "200ms" });
    const requestId = edge.newRequestId();
    const stream = await ask(running, slowStream, requestId);
    const text = stream.text().catch(() => "cut");
    expect(await running.end("SIGTERM")).toEqual({ code: 0, signal: null });
    await text;
    expect(endedOf(requestId)[0]).toMatchObject({ outcome: "cancelled", exactness: "exact" });
  });

  it("says which file cannot be used and why, and keeps serving the other models (C073)", async () => {
    const missing = path.join("/nonexistent", "model.gguf");
    const folder = mkdtempSync(path.join(tmpdir(), "steerage-files-"));
    const [text, short] = [path.join(folder, "text.gguf"), path.join(folder, "short.gguf")];
    writeFileSync(text, "this is no model file, but a text that is long enough to be looked at");
    writeFileSync(short, "GGUF\u0003");
    const running = await start({
      models: [
        { name: "sim", engine: "sim" },
        { name: "missing", source: missing },
        { name: "text", source: text },
        { name: "short", source: short },
      ],
    });
    await until("all three failed", () => ["missing", "text", "short"].every((id) => stateOf(id) === "failed"));
    expect(replicaOf("missing")?.reason).toBe(`${missing}: does not exist`);
    expect(replicaOf("text")?.reason).toBe(`${text}: not a GGUF file`);
    expect(replicaOf("short")?.reason).toBe(`${short}: truncated, it ends inside its header`);
    rmSync(folder, { recursive: true });
    expect((await ask(running, chat())).status).toBe(200);
  });
});
