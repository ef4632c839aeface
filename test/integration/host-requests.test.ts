import { generateKeyPair } from "jose";
import { afterAll, beforeAll, describe, expect, it } from "vitest";
import { z } from "zod";
import type { AskedAttempt } from "../../shared/protocol/answer.ts";
import { FakeEdge, type SignOptions } from "../support/fake-edge.ts";
import { HostProcess, type HostRequestInit, until } from "../support/host-process.ts";

const chat = (extra: Record<string, unknown> = {}): string =>
  JSON.stringify({ model: "sim", messages: [{ role: "user", content: "hello there" }], max_tokens: 8, ...extra });

const errorSchema = z.object({ error: z.object({ code: z.string() }) });
const usageSchema = z.object({ usage: z.looseObject({}) });

async function codeOf(response: Response): Promise<string> {
  return errorSchema.parse(await response.json()).error.code;
}

describe("a host in front of an engine", () => {
  let edge: FakeEdge;
  let host: HostProcess;

  beforeAll(async () => {
    edge = await FakeEdge.start({ host: "gpu-1" });
    host = await HostProcess.start(edge, {
      models: [{ name: "sim", engine: "sim", slots: 4, max_pending: 4, context_length: 200_000 }],
    });
    await until("the replica is ready", () => edge.lastReport?.replicas[0]?.state === "ready");
  });
  afterAll(async () => {
    await host.stop();
    await edge.stop();
  });

  const ask = async (body: string, sign: Partial<SignOptions> = {}, init: HostRequestInit = {}): Promise<Response> =>
    host.request(await edge.sign({ body, ...sign }), body, { ...init, path: sign.path ?? "/v1/chat/completions" });
  const endedOf = (requestId: string) => edge.ended.filter(({ request_id }) => request_id === requestId);

  const verdict = async (sign: Partial<SignOptions>, sent = chat()): Promise<unknown[]> => {
    const requestId = edge.newRequestId();
    const response = await host.request(await edge.sign({ body: chat(), requestId, ...sign }), sent);
    return [response.status, await codeOf(response), endedOf(requestId).length];
  };

  it("passes a signed request to the engine and its answer back", async () => {
    const requestId = edge.newRequestId();
    const response = await ask(chat(), { requestId });
    expect(response.status).toBe(200);
    expect(response.headers.get("x-steerage-steering")).toBe("none");
    expect(usageSchema.parse(await response.json()).usage).toMatchObject({ prompt_tokens: 5, completion_tokens: 8 });
    await until("the request is reported as ended", () => endedOf(requestId).length > 0);
    expect(endedOf(requestId)[0]).toMatchObject({
      edge: "edge-1",
      replica: "sim",
      attempt: 1,
      computed_completion: 8,
      outcome: "completed",
      exactness: "exact",
    });
  });

  it("streams event by event and ends with [DONE]", async () => {
    const response = await ask(chat({ stream: true, stream_options: { include_usage: true } }));
    expect(response.headers.get("content-type")).toContain("text/event-stream");
    const text = await response.text();
    const events = text.trim().split("\n\n");
    expect(events.length).toBe(1 + 8 + 1 + 1 + 1);
    expect(events.at(-1)).toBe("data: [DONE]");
    expect(events.at(-2)).toContain('"completion_tokens":8');
  });

  it("answers completions and embeddings too", async () => {
    const completion = await ask(JSON.stringify({ model: "sim", prompt: "once", max_tokens: 2 }), {
      path: "/v1/completions",
    });
    expect(completion.status).toBe(200);
    const embedding = await ask(JSON.stringify({ model: "sim", input: "once" }), { path: "/v1/embeddings" });
    expect(embedding.status).toBe(200);
  });

  it("passes the engine's own refusal on and says that the backend refused", async () => {
    const requestId = edge.newRequestId();
    const response = await ask(chat({ max_tokens: 0 }), { requestId });
    expect(response.status).toBe(400);
    expect(response.headers.get("x-steerage-error-source")).toBe("backend");
    await until("it is reported as ended", () => endedOf(requestId).length > 0);
    expect(endedOf(requestId)[0]).toMatchObject({ computed_prompt: 0, computed_completion: 0, exactness: "exact" });
  });

  it("closes the engine's connection as soon as the edge leaves, and reports exact counts", async () => {
    const requestId = edge.newRequestId();
    const abort = new AbortController();
    const body = chat({ stream: true, max_tokens: 5_000, ignore_eos: true, sim: { tokens_per_second: 50 } });
    const response = await ask(body, { requestId }, { signal: abort.signal });
    await response.body?.getReader().read();
    abort.abort();
    await until("it is reported as ended", () => endedOf(requestId).length > 0);
    const [entry] = endedOf(requestId);
    expect(entry).toMatchObject({ outcome: "cancelled", exactness: "exact" });
    expect(entry?.computed_completion).toBeLessThan(200);
    await until("nothing is in flight", () => edge.lastReport?.replicas[0]?.in_flight === 0);
  });

  it("holds the engine back for an edge that reads slowly, and loses no byte", async () => {
    const requestId = edge.newRequestId();
    const tokens = 80_000;
    const response = await ask(chat({ stream: true, max_tokens: tokens, ignore_eos: true }), { requestId });
    const reader = response.body?.getReader();
    const decoder = new TextDecoder();
    let text = decoder.decode((await reader?.read())?.value, { stream: true });
    // About 16 MB of events stand against a few of socket buffers: the engine cannot finish while nobody reads.
    const cells = (back: number) => edge.reports.at(-back)?.report.replicas[0]?.free_kv_cells ?? 0;
    await until("the engine stands still", () => cells(1) === cells(2) && cells(1) < 4 * 200_000 - 1_000);
    expect(endedOf(requestId)).toEqual([]);
    for (;;) {
      const part = await reader?.read();
      if (part === undefined || part.done) break;
      text += decoder.decode(part.value, { stream: true });
    }
    expect(text.split('"content":" ').length - 1).toBe(tokens - 1);
    expect(text.endsWith("data: [DONE]\n\n")).toBe(true);
    await until("it is reported", () => endedOf(requestId).length > 0);
    expect(endedOf(requestId)[0]?.computed_completion).toBe(tokens);
  });

  it("refuses more than slots and queue hold, with Retry-After and no ended entry", async () => {
    const body = chat({ max_tokens: 1, sim: { hang: true } });
    const abort = new AbortController();
    const hanging = Array.from({ length: 8 }, () => ask(body, {}, { signal: abort.signal }).catch(() => null));
    await until("eight are in flight", () => edge.lastReport?.replicas[0]?.in_flight_by_edge["edge-1"] === 8);
    const requestId = edge.newRequestId();
    const response = await ask(chat(), { requestId });
    expect(response.status).toBe(503);
    expect(Number(response.headers.get("retry-after"))).toBeGreaterThanOrEqual(1);
    expect(await codeOf(response)).toBe("engine_busy");
    abort.abort();
    await Promise.all(hanging);
    await until("nothing is in flight", () => edge.lastReport?.replicas[0]?.in_flight === 0);
    expect(endedOf(requestId)).toEqual([]);
  });

  describe("asked by an edge for what it waits for", () => {
    const askFor = async (requestId: string, over: Partial<AskedAttempt> = {}): Promise<void> => {
      const epoch = edge.lastReport?.epoch ?? 0;
      edge.asked = [{ request_id: requestId, attempt: 1, replica: "sim", epoch, ...over }];
      const seq = edge.lastReport?.seq ?? 0;
      await until("the answer was used", () => (edge.lastReport?.seq ?? 0) > seq + 2);
      edge.asked = [];
    };

    it("reports exact zeros for a request that never came, once, and lets it in no more", async () => {
      const requestId = edge.newRequestId();
      await askFor(requestId);
      expect(endedOf(requestId)).toMatchObject([
        { computed_prompt: 0, computed_completion: 0, outcome: "cancelled", exactness: "exact" },
      ]);
      expect((await ask(chat(), { requestId })).status).toBe(401);
    });

    it("reports exact zeros for a request that it turned away", async () => {
      const requestId = edge.newRequestId();
      expect((await ask(chat(), { requestId, replica: "another" })).status).toBe(503);
      await askFor(requestId);
      expect(endedOf(requestId)).toMatchObject([{ computed_completion: 0, exactness: "exact" }]);
    });

    it("says nothing of one that runs, that it has told of, or that a former life of it had", async () => {
      const abort = new AbortController();
      const running = edge.newRequestId();
      const hanging = ask(chat({ sim: { hang: true } }), { requestId: running }, { signal: abort.signal });
      await until("it is in flight", () => edge.lastReport?.replicas[0]?.in_flight === 1);
      await askFor(running);
      expect(endedOf(running)).toEqual([]);
      abort.abort();
      await hanging.catch(() => null);
      await until("it is reported", () => endedOf(running).length > 0);
      const before = edge.lastReport?.counters[0]?.requests;
      await askFor(running);
      expect(edge.lastReport?.counters[0]?.requests ?? before).toBe(before);

      const former = edge.newRequestId();
      await askFor(former, { epoch: 1 });
      expect(endedOf(former)).toEqual([]);
    });
  });

  describe("refuses with 401", () => {
    const refused = [401, "host_unauthorized", 0];

    it("a request without a token or with one that is none", async () => {
      for (const authorization of ["", "Bearer", "Bearer abc", "Basic abc", "Bearer a.b.c"]) {
        const response = await host.request("", chat(), { headers: { authorization } });
        expect(response.status).toBe(401);
      }
    });

    it("a key it does not know, under a known kid or its own", async () => {
      const { privateKey } = await generateKeyPair("EdDSA", { crv: "Ed25519" });
      expect(await verdict({ key: privateKey })).toEqual(refused);
      expect(await verdict({ key: privateKey, header: { kid: "stranger" } })).toEqual(refused);
    });

    it("another body than the signed one", async () => {
      expect(await verdict({}, chat({ max_tokens: 7 }))).toEqual(refused);
    });

    it.each<Readonly<Record<string, unknown>>>([
      { aud: "gpu-2" },
      { iss: "edge-2" },
      { method: "GET" },
      { path: "/v1/completions" },
      { jti: "something.1" },
      { replica: undefined },
    ])("a token with %j", async (claims) => {
      expect(await verdict({ claims })).toEqual(refused);
    });

    it.each([
      ["is expired", -60, -30],
      ["comes from the future", 60, 80],
      ["lives too long", 0, 3_600],
    ])("a token that %s", async (_name, issuedAfter, expiresAfter) => {
      const now = Math.floor(Date.now() / 1_000);
      expect(await verdict({ claims: { iat: now + issuedAfter, exp: now + expiresAfter } })).toEqual(refused);
    });

    it("the same token a second time", async () => {
      const body = chat();
      const token = await edge.sign({ body });
      expect((await host.request(token, body)).status).toBe(200);
      expect((await host.request(token, body)).status).toBe(401);
    });

    it("a token of another algorithm", async () => {
      const { privateKey } = await generateKeyPair("ES256");
      expect(await verdict({ key: privateKey, header: { alg: "ES256" } })).toEqual(refused);
    });
  });

  it("refuses a body over the limit before it is read", async () => {
    const body = JSON.stringify({ filler: "x".repeat(11 * 2 ** 20) });
    const requestId = edge.newRequestId();
    const response = await ask(body, { requestId }).catch(() => null);
    // The connection may be closed while the body is still being sent; nothing reaches the engine either way.
    expect([413, undefined]).toContain(response?.status);
    expect(endedOf(requestId)).toEqual([]);
  });

  it("answers unknown replicas, routes and methods in the OpenAI envelope", async () => {
    const unknown = await ask(chat(), { replica: "nothing" });
    expect([unknown.status, await codeOf(unknown)]).toEqual([503, "no_replica_available"]);
    const route = await fetch(`${host.url}/v1/nothing`);
    expect([route.status, await codeOf(route)]).toEqual([404, "route_not_found"]);
    const method = await fetch(`${host.url}/v1/chat/completions`);
    expect([method.status, method.headers.get("allow"), await codeOf(method)]).toEqual([
      405,
      "POST",
      "method_not_allowed",
    ]);
  });
});
