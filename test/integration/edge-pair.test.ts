import { afterAll, beforeAll, describe, expect, it } from "vitest";
import { EdgePair, type EdgeName } from "../support/edge-pair.ts";

const ASK = { model: "sim", messages: [{ role: "user", content: "x" }], max_tokens: 4 };
const LONG = { ...ASK, max_tokens: 5_000, stream: true };
const EDGES: readonly EdgeName[] = ["a", "b"];

describe("two edges on one database", () => {
  let pair: EdgePair;
  beforeAll(async () => {
    pair = await EdgePair.start({
      database: "file",
      edge: { control: { lease_ttl: "5s" } },
      sim: { output_tokens: 5_000, tokens_per_second: 50 },
      slots: 3,
    });
  }, 60_000);
  afterAll(() => pair.stop());

  const askAs = async (name: EdgeName, key: string): Promise<number> => {
    const response = await pair.request(name, "/chat/completions", ASK, {
      headers: { authorization: `Bearer ${key}` },
    });
    await response.text();
    return response.status;
  };

  it("serve the same keys, and both hear within a moment that one is revoked", async () => {
    const { key, id } = await pair.newKey();
    for (const name of EDGES) expect(await askAs(name, key)).toBe(200);
    await pair.cli("a", "keys", "revoke", id);
    for (const name of EDGES) await pair.until(`edge ${name} knows it`, async () => (await askAs(name, key)) === 401);
  }, 60_000);

  it("count each other's running requests against a machine's slots: the next one waits in the edge", async () => {
    const streams = await Promise.all([1, 2, 3].map(() => pair.request("a", "/chat/completions", LONG)));
    const readers = streams.map((stream) => stream.body?.getReader());
    for (const reader of readers) await reader?.read();
    await pair.until("the other edge was told", async () =>
      (await pair.metric("b", /^steerage_saturation\{/)).some((line) => Number(line.split(" ").at(-1)) >= 1),
    );
    const leave = new AbortController();
    const waiting = pair.request("b", "/chat/completions", ASK, { signal: leave.signal }).catch(() => null);
    await pair.until(
      "it waits in the queue of edge b",
      async () => (await pair.metric("b", /^steerage_queue_depth\{.*\} 1$/)).length > 0,
    );
    await readers[0]?.cancel();
    const answered = await waiting;
    expect(answered?.status).toBe(200);
    await answered?.text();
    for (const reader of readers) await reader?.cancel();
  }, 60_000);

  it("have keys of their own, and one that starts with new ones does not disturb the other's", async () => {
    const { key } = await pair.newKey();
    await pair.end("b", "SIGTERM");
    pair.rotateSigningKey("b");
    pair.startEdge("b");
    await pair.untilServing("b");
    for (const name of EDGES) {
      await pair.until(`the host takes requests of edge ${name}`, async () => (await askAs(name, key)) === 200);
      expect(await askAs(name, key)).toBe(200);
    }
    expect(pair.log.filter((line) => line.includes("not trusted"))).toEqual([]);
  }, 60_000);

  it("do not share a name: the second says so and ends with 2", async () => {
    const { code, stderr } = await pair.startAs("a");
    expect(code).toBe(2);
    expect(stderr).toMatch(/^steerage: another edge named 'a' uses this database: .*'name'.* free in \d+ s\.$/m);
  }, 30_000);

  it("hand placement over when one ends, under a higher number", async () => {
    const holder = async () => (await pair.rows("select holder, number from edge_leases"))[0];
    const before = await holder();
    const name = before?.["holder"] === "a" ? "a" : "b";
    await pair.end(name, "SIGTERM");
    await pair.until("the other holds it", async () => (await holder())?.["holder"] !== name);
    expect(Number((await holder())?.["number"])).toBeGreaterThan(Number(before?.["number"]));
    pair.startEdge(name);
    await pair.untilServing(name);
  }, 60_000);
});
