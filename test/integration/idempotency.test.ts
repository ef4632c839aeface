import OpenAI from "openai";
import { afterAll, beforeAll, beforeEach, describe, expect, it } from "vitest";
import { EdgeOnNode } from "../support/edge-on-node.ts";
import { answerOfFive, chunkText, endOfStream, ScriptedEndpoint } from "../support/scripted-endpoint.ts";

const question = { model: "m", messages: [{ role: "user" as const, content: "Count." }] };

describe("Idempotency-Key, over real sockets", () => {
  let endpoint: ScriptedEndpoint;
  let edge: EdgeOnNode;

  beforeAll(async () => {
    endpoint = await ScriptedEndpoint.start();
    edge = await EdgeOnNode.start({
      endpoints: [{ id: "other", url: endpoint.url, models: ["m"] }],
      auth: { default_price: { prompt_per_1k: 2, completion_per_1k: 3 } },
      router: { retries: 0, cooldown: "1ms" },
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

  const post = (key: string, more: object = {}, signal?: AbortSignal): Promise<Response> =>
    edge.post(
      "/chat/completions",
      { ...question, ...more },
      {
        headers: { "Idempotency-Key": key },
        ...(signal === undefined ? {} : { signal }),
      },
    );
  const rowsOf = async (answer: Response): Promise<number> => {
    await edge.rowOf(answer);
    const id = answer.headers.get("x-request-id");
    return (await edge.rows()).filter(({ requestId }) => requestId === id).length;
  };

  it("gives the first answer again, byte for byte, and bills it once, also after a restart of the edge", async () => {
    const first = await post("whole");
    const text = await first.text();
    const again = await post("whole");
    expect([again.status, await again.text()]).toEqual([200, text]);
    expect(again.headers.get("idempotent-replayed")).toBe("true");
    expect(again.headers.get("x-request-id")).toBe(first.headers.get("x-request-id"));
    expect(again.headers.get("x-ratelimit-limit-requests")).toBe("600");
    expect(await rowsOf(first)).toBe(1);
    const before = (await edge.rows()).length;
    await edge.restart();
    const later = await post("whole");
    expect([later.status, await later.text(), later.headers.get("content-type")]).toEqual([
      200,
      text,
      first.headers.get("content-type"),
    ]);
    expect([(await edge.rows()).length, endpoint.seen.length]).toEqual([before, 1]);
  });

  it("gives a stream's events again", async () => {
    const first = await (await post("stream", { stream: true })).text();
    const again = await post("stream", { stream: true });
    expect(again.headers.get("content-type")).toContain("text/event-stream");
    expect(await again.text()).toBe(first);
    expect(first.trimEnd().endsWith("data: [DONE]")).toBe(true);
    expect(endpoint.seen).toHaveLength(1);
  });

  it("lets a repetition take up the stream of a client that lost its connection, from its beginning", async () => {
    const go = { on: (): void => undefined };
    endpoint.script = async (_request, response) => {
      response.writeHead(200, { "content-type": "text/event-stream" });
      response.write(chunkText({ content: "one " }));
      await new Promise<void>((resolve) => (go.on = resolve));
      response.end(chunkText({ content: "two" }) + endOfStream());
    };
    const lost = new AbortController();
    const first = await post("lost", { stream: true }, lost.signal);
    await first.body?.getReader().read();
    lost.abort();
    const again = await post("lost", { stream: true });
    go.on();
    const text = await again.text();
    expect([text.includes("one "), text.includes("two"), text.includes("[DONE]")]).toEqual([true, true, true]);
    expect(endpoint.seen).toHaveLength(1);
    expect(await edge.rowOf(again)).toMatchObject({ outcome: "completed", completionTokens: 5 });
  });

  it("runs parallel repetitions once", async () => {
    const answers = await Promise.all(Array.from({ length: 20 }, () => post("parallel")));
    const texts = await Promise.all(answers.map((answer) => answer.text()));
    expect(new Set(texts).size).toBe(1);
    expect(answers.every(({ status }) => status === 200)).toBe(true);
    expect(endpoint.seen).toHaveLength(1);
  });

  it("refuses another request with the same key, and a key that is none", async () => {
    await (await post("other")).text();
    const other = await post("other", { seed: 1 });
    expect([other.status, await other.json()]).toMatchObject([422, { error: { code: "idempotency_key_reused" } }]);
    const long = await post("k".repeat(256));
    expect([long.status, await long.json()]).toMatchObject([
      400,
      { error: { code: "invalid_value", param: "Idempotency-Key" } },
    ]);
    const unspoiled = await edge.post("/chat/completions", { ...question, seed: 1 });
    expect([unspoiled.status, unspoiled.headers.get("idempotent-replayed")]).toEqual([200, null]);
    await unspoiled.text();
  });

  it("does not stand between an openai client and its own retry after a 5xx", async () => {
    endpoint.script = (request, response) => {
      if (endpoint.seen.length > 1) return answerOfFive(request, response);
      return response.writeHead(503, { "content-type": "application/json", "retry-after": "1" }).end("{}");
    };
    const client = new OpenAI({ baseURL: edge.urls.baseUrl, apiKey: edge.key, maxRetries: 2 });
    const answer = await client.chat.completions.create(question, { headers: { "Idempotency-Key": "sdk" } });
    expect(answer.usage?.completion_tokens).toBe(5);
    expect(endpoint.seen).toHaveLength(2);
  });
});
