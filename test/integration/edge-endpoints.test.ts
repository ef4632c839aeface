import { afterAll, beforeAll, beforeEach, describe, expect, it } from "vitest";
import { EdgeOnNode } from "../support/edge-on-node.ts";
import { errorBodyOf } from "../support/error-body.ts";
import { answerOfFive, chunkText, FIVE_WORDS, ScriptedEndpoint } from "../support/scripted-endpoint.ts";
import { until } from "../support/stack.ts";

const question = { model: "m", messages: [{ role: "user", content: "Count." }] };
const MAX_BODY_BYTES = 100_000;

describe("an edge on Node in front of a static endpoint", () => {
  let endpoint: ScriptedEndpoint;
  let edge: EdgeOnNode;

  beforeAll(async () => {
    endpoint = await ScriptedEndpoint.start();
    edge = await EdgeOnNode.start({
      endpoints: [{ id: "other", url: `${endpoint.url}/v1`, models: ["m", "org/name:q8"] }],
      auth: { default_price: { prompt_per_1k: 2, completion_per_1k: 3 } },
      router: { max_body_bytes: MAX_BODY_BYTES },
    });
  });
  afterAll(async () => {
    await edge.remove();
    await endpoint.stop();
  });
  beforeEach(() => {
    endpoint.script = answerOfFive;
    endpoint.seen.length = 0;
  });

  const head = (more: string): string =>
    `POST /v1/chat/completions HTTP/1.1\r\nHost: edge\r\nConnection: close\r\nContent-Type: application/json\r\n` +
    `Authorization: Bearer ${edge.key}\r\n${more}\r\n`;

  it("answers whole and streamed, and leaves a row with the price of each", async () => {
    const whole = await edge.post("/chat/completions", question);
    expect(whole.status).toBe(200);
    expect(whole.headers.get("x-request-id")).toMatch(/^req_/);
    expect(whole.headers.get("x-steerage-route")).toBe("other/m;attempts=1");
    expect(await whole.json()).toMatchObject({ choices: [{ message: { content: FIVE_WORDS.join("") } }] });
    const stream = await edge.post("/chat/completions", { ...question, stream: true });
    expect(stream.headers.get("content-type")).toContain("text/event-stream");
    const text = await stream.text();
    expect(text).toContain("three ");
    expect(text.trimEnd().endsWith("data: [DONE]")).toBe(true);
    expect(text).not.toContain('"usage"');
    const ids = [whole, stream].map(({ headers }) => headers.get("x-request-id"));
    await until("both rows are stored", async () => {
      const known = new Set<string | null>((await edge.rows()).map(({ requestId }) => requestId));
      return ids.every((id) => known.has(id));
    });
    for (const row of (await edge.rows()).filter(({ requestId }) => ids.includes(requestId))) {
      expect(row).toMatchObject({
        outcome: "completed",
        exactness: "exact",
        project: "test",
        promptTokens: 7,
        completionTokens: 5,
        costNanoUsd: "29",
      });
    }
  });

  it("sends the endpoint what the caller wrote and nothing of the caller's headers, which decide nothing (C079)", async () => {
    const text = `{ "model":"m",\n "messages":[{"role":"user","content":"\\u00e9"}], "seed":1e0 }`;
    const internal = {
      "x-priority": "99",
      "x-tenant-id": "other",
      "x-backend": "http://127.0.0.1:1",
      "x-internal-auth": "y",
      "x-forwarded-for": "10.0.0.1",
    };
    const answer = await edge.post("/chat/completions", text, { headers: { cookie: "s=1", ...internal } });
    const [seen] = endpoint.seen;
    expect(seen?.path).toBe("/v1/chat/completions");
    expect(seen?.body).toBe(text);
    for (const name of ["cookie", "authorization", ...Object.keys(internal)])
      expect(seen?.headers[name]).toBeUndefined();
    expect(await edge.rowOf(answer)).toMatchObject({ band: "default", project: "test", backend: "other" });
  });

  it("closes the endpoint's connection when the client leaves", async () => {
    endpoint.script = (_request, response) => {
      response.writeHead(200, { "content-type": "text/event-stream" });
      response.write(chunkText({ content: "word " }));
    };
    const leaving = new AbortController();
    const response = await edge.post("/chat/completions", { ...question, stream: true }, { signal: leaving.signal });
    await response.body?.getReader().read();
    leaving.abort();
    await expect(endpoint.seen[0]?.aborted).resolves.toBeUndefined();
    await until("nothing is in flight", async () => {
      const metrics = await fetch(edge.urls.metricsUrl ?? "").then((answer) => answer.text());
      return /^steerage_requests_in_flight 0$/m.test(metrics);
    });
  });

  it("finds models with slashes and colons, encoded or not", async () => {
    const headers = { authorization: `Bearer ${edge.key}` };
    for (const name of ["org/name:q8", "org%2Fname%3Aq8"]) {
      const response = await fetch(`${edge.urls.baseUrl}/models/${name}`, { headers });
      expect(await response.json()).toMatchObject({ id: "org/name:q8", object: "model" });
    }
  });

  describe("bad input", () => {
    it("over the size limit is 413, with a length and without one", async () => {
      const body = JSON.stringify({ ...question, user: "x".repeat(MAX_BODY_BYTES) });
      const announced = await edge.post("/chat/completions", body);
      expect(announced.status).toBe(413);
      expect((await errorBodyOf(announced)).code).toBe("body_too_large");
      const size = 65_536;
      const chunk = `${size.toString(16)}\r\n${"x".repeat(size)}\r\n`;
      const chunked = await edge.raw(`${head("Transfer-Encoding: chunked\r\n")}${chunk.repeat(4)}`);
      expect(chunked).toMatch(/^HTTP\/1\.1 413 /);
      expect(chunked).toContain('"code":"body_too_large"');
      expect(endpoint.seen).toEqual([]);
    });

    it("oversized and without a key is 401: who asks comes first", async () => {
      const body = JSON.stringify({ ...question, user: "x".repeat(MAX_BODY_BYTES) });
      const response = await edge.post("/chat/completions", body, { headers: { authorization: "Bearer sk-st-x" } });
      expect(response.status).toBe(401);
      expect((await errorBodyOf(response)).code).toBe("invalid_api_key");
    });

    it("with two different credentials is 401", async () => {
      const answer = await edge.raw(`${head("Authorization: Bearer sk-st-other\r\nContent-Length: 2\r\n")}{}`);
      expect(answer).toMatch(/^HTTP\/1\.1 401 [^]*"code":"invalid_api_key"/);
    });

    it("that ends before its announced length leaves nothing hanging", async () => {
      await edge.raw(`${head("Content-Length: 500\r\n")}{"model":`, { thenEnd: true });
      expect(endpoint.seen).toEqual([]);
      expect((await edge.post("/chat/completions", question)).status).toBe(200);
    });

    it("that is no HTTP, no path or too long a header gets our envelope too", async () => {
      expect(await edge.raw("nonsense\r\n\r\n")).toMatch(/^HTTP\/1\.1 400 [^]*"error":\{"message"/);
      expect(await edge.raw("GET * HTTP/1.1\r\nHost: edge\r\nConnection: close\r\n\r\n")).toMatch(
        /^HTTP\/1\.1 400 [^]*"error":\{"message"/,
      );
      expect(await edge.raw(head(`X-Long: ${"y".repeat(40_000)}\r\n`))).toMatch(
        /^HTTP\/1\.1 431 [^]*"error":\{"message"/,
      );
    });

    it.each([
      ["not JSON", "{", 400, "invalid_json"],
      ["no object", "[1]", 400, "invalid_body"],
      ["an unknown model", { ...question, model: "nope" }, 404, "model_not_found"],
      [
        "steering that no machine could do",
        { ...question, steering: { sae_id: "s", features: [{ index: 1, strength: 1 }] } },
        400,
        "sae_not_available",
      ],
    ])("%s is refused before any machine hears of it", async (_what, body, status, code) => {
      const response = await edge.post("/chat/completions", body);
      expect(response.status).toBe(status);
      expect((await errorBodyOf(response)).code).toBe(code);
      expect(endpoint.seen).toEqual([]);
    });

    it("leaves no row", async () => {
      const response = await edge.post("/chat/completions", { ...question, model: "nope" });
      const answered = await edge.post("/chat/completions", question);
      await until("the later request's row is stored", async () =>
        (await edge.rows()).some(({ requestId }) => requestId === answered.headers.get("x-request-id")),
      );
      const ids = (await edge.rows()).map(({ requestId }) => requestId);
      expect(ids).not.toContain(response.headers.get("x-request-id"));
    });
  });

  it("refuses a key within a second or so of its revocation", async () => {
    const key = await edge.newKey();
    const ask = () => edge.post("/chat/completions", question, { headers: { authorization: `Bearer ${key}` } });
    await until("the new key is known", async () => (await ask()).status === 200);
    await edge.revoke(key);
    await until("the key is refused", async () => (await ask()).status === 401, 5_000);
    const refused = await errorBodyOf(await ask());
    expect(refused.message).not.toContain(key.slice(-12));
  });

  it("gives an endpoint's failure as 502 in a stream's place, and an error event inside one", async () => {
    endpoint.script = (_request, response) => response.destroy();
    const failed = await edge.post("/chat/completions", question);
    expect(failed.status).toBeGreaterThanOrEqual(502);
    expect((await errorBodyOf(failed)).type).toBe("server_error");
    endpoint.script = (_request, response) => {
      response.writeHead(200, { "content-type": "text/event-stream" });
      response.write(chunkText({ content: "word " }), () => response.destroy());
    };
    const cut = await edge.post("/chat/completions", { ...question, stream: true });
    const text = await cut.text();
    expect(text).toContain('data: {"error":{');
    expect(text).not.toContain("[DONE]");
  });
});
