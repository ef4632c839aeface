import { randomBytes } from "node:crypto";
import { afterAll, beforeAll, beforeEach, describe, expect, it } from "vitest";
import { z } from "zod";
import { newApiKey } from "../../edge/accounts/api-key.ts";
import { modelListSchema } from "../../shared/openai/models.ts";
import type { EndedRequest } from "../../shared/protocol/report.ts";
import { EdgeOnWorkers } from "../support/edge-on-workers.ts";
import { errorBodyOf } from "../support/error-body.ts";
import { hostReport } from "../support/fleet-report.ts";
import { answerOfFive, chunkText, FIVE_WORDS, ScriptedEndpoint, streamOf } from "../support/scripted-endpoint.ts";
import { batchOf, endedRequest, usageRow } from "../support/usage-rows.ts";
import { until } from "../support/stack.ts";

const CHAT = "/v1/chat/completions";
const question = { model: "m", messages: [{ role: "user", content: "Count." }] };

describe("the edge inside workerd", () => {
  let endpoint: ScriptedEndpoint;
  let edge: EdgeOnWorkers;

  beforeAll(async () => {
    endpoint = await ScriptedEndpoint.start();
    edge = await EdgeOnWorkers.start({
      name: "worker-edge",
      endpoints: [{ id: "other", url: endpoint.url, models: ["m"], slots: 2 }],
      auth: { default_price: { prompt_per_1k: 2, completion_per_1k: 3 } },
      router: { keep_alive: "50ms", failure_threshold: 1_000 },
    });
  });
  afterAll(async () => {
    await edge.stop();
    await endpoint.stop();
  });
  beforeEach(() => {
    endpoint.script = answerOfFive;
    endpoint.seen.length = 0;
  });

  it("lists the models", async () => {
    const response = await edge.request("/v1/models");
    expect(response.status).toBe(200);
    const list = modelListSchema.parse(await response.json());
    expect(list.data.map(({ id }) => id)).toEqual(["m"]);
  });

  it("streams an answer from a loopback endpoint, and its row reaches the database", async () => {
    const response = await edge.request(CHAT, { body: { ...question, stream: true } });
    expect(response.status).toBe(200);
    expect(response.headers.get("content-type")).toContain("text/event-stream");
    const text = await response.text();
    for (const word of FIVE_WORDS) expect(text).toContain(JSON.stringify(word));
    expect(text.trimEnd().endsWith("data: [DONE]")).toBe(true);
    const requestId = response.headers.get("x-request-id");
    await until("the row is stored", async () => (await edge.rows()).some((row) => row.requestId === requestId));
    const row = (await edge.rows()).find((one) => one.requestId === requestId);
    expect(row).toMatchObject({
      outcome: "completed",
      exactness: "exact",
      project: "test",
      model: "m",
      backend: "other",
      promptTokens: 7,
      completionTokens: 5,
      costNanoUsd: "29",
    });
  });

  it("answers whole and sends the endpoint nothing of the caller's key", async () => {
    const response = await edge.request(CHAT, { body: question });
    expect(await response.json()).toMatchObject({ choices: [{ message: { content: FIVE_WORDS.join("") } }] });
    expect(response.headers.get("x-steerage-route")).toBe("other/m;attempts=1");
    expect(endpoint.seen[0]?.headers.authorization).toBeUndefined();
  });

  it("answers a repetition with the first answer, also while that is being made, and bills it once", async () => {
    const ask = () => edge.request(CHAT, { body: question, headers: { "idempotency-key": "once" } });
    const answers = await Promise.all([ask(), ask(), ask()]);
    answers.push(await ask());
    const texts = await Promise.all(answers.map((answer) => answer.text()));
    expect(answers.map(({ status }) => status)).toEqual([200, 200, 200, 200]);
    expect([new Set(texts).size, endpoint.seen.length]).toEqual([1, 1]);
    expect(answers.filter(({ headers }) => headers.get("idempotent-replayed") === "true")).toHaveLength(3);
    const ids = new Set(answers.map(({ headers }) => headers.get("x-request-id")));
    expect(ids.size).toBe(1);
    const rows = async (): Promise<number> => (await edge.rows()).filter(({ requestId }) => ids.has(requestId)).length;
    await until("its row is stored", async () => (await rows()) === 1);
    const other = await edge.request(CHAT, { body: { ...question, seed: 1 }, headers: { "idempotency-key": "once" } });
    expect([other.status, (await errorBodyOf(other)).code]).toEqual([422, "idempotency_key_reused"]);
  });

  it("tells a key what it has left", async () => {
    const key = await edge.request("/v1/key");
    expect([key.status, key.headers.get("x-ratelimit-limit-requests")]).toEqual([200, "600"]);
    expect(await key.json()).toMatchObject({ object: "key", project: "test", scopes: [{ scope: "key" }, {}, {}] });
  });

  it("refuses a wrong key with 401 before anything else", async () => {
    const response = await edge.request(CHAT, { body: question, key: `${edge.key.slice(0, -1)}_` });
    expect(response.status).toBe(401);
    expect((await errorBodyOf(response)).code).toBe("invalid_api_key");
    const lookalike = `${edge.key.slice(0, -2)}${edge.key.endsWith("aa") ? "bb" : "aa"}`;
    expect((await edge.request("/v1/models", { key: lookalike })).status).toBe(401);
    expect(endpoint.seen).toEqual([]);
  });

  it.each([
    ["an unknown model", { ...question, model: "nope" }, 404, "model_not_found"],
    ["a body that is no object", [1], 400, "invalid_body"],
  ])("refuses %s as on Node", async (_what, body, status, code) => {
    const response = await edge.request(CHAT, { body });
    expect(response.status).toBe(status);
    expect((await errorBodyOf(response)).code).toBe(code);
  });

  it("closes the endpoint's connection when the client leaves, and gives its slots back (C028)", async () => {
    endpoint.script = (_request, response) => {
      response.writeHead(200, { "content-type": "text/event-stream" });
      // This runtime learns that a client is gone from its next write to it.
      const writing = setInterval(() => response.write(chunkText({ content: "word " })), 20);
      response.once("close", () => clearInterval(writing));
    };
    for (let round = 0; round < 4; round++) {
      const leaving = new AbortController();
      const response = await fetch(`${await edge.origin()}${CHAT}`, {
        method: "POST",
        body: JSON.stringify({ ...question, stream: true }),
        headers: { "content-type": "application/json", authorization: `Bearer ${edge.key}` },
        signal: leaving.signal,
      });
      await response.body?.getReader().read();
      leaving.abort();
      await expect(endpoint.seen[round]?.aborted).resolves.toBeUndefined();
    }
  });

  it("keeps a waiting stream alive with comments, from before its machine has said a word (C005, C006)", async () => {
    let go: () => void = () => undefined;
    endpoint.script = (request, response) => {
      go = () => answerOfFive(request, response);
    };
    const answer = await edge.request(CHAT, { body: { ...question, stream: true } });
    expect(answer.status).toBe(200);
    let text = "";
    let waiting = true;
    for await (const part of answer.body?.pipeThrough(new TextDecoderStream()) ?? []) {
      text += part;
      if (!waiting || text.split("\n").filter((line) => line.startsWith(":")).length < 3) continue;
      waiting = false;
      go();
    }
    expect(text).toMatch(/^(?::[^\n]*\n\n){3,}data: /);
    expect(text.endsWith("data: [DONE]\n\n")).toBe(true);
  });

  it.each([
    ["no end", [chunkText({ content: "a" })]],
    ["no finish reason", [chunkText({ content: "a" }), "data: [DONE]\n\n"]],
    ["words in place of events", [chunkText({ content: "a" }), "data: upstream failed\n\n"]],
  ])("tells that a stream with %s is not whole (C013, C016, C097)", async (_what, parts) => {
    endpoint.script = streamOf(parts);
    const text = await (await edge.request(CHAT, { body: { ...question, stream: true } })).text();
    expect(text).toMatch(/\n\ndata: \{"error":\{[^\n]*\}\}\n\n$/);
    expect(text).not.toContain("[DONE]");
  });

  it("finds out when a request comes back to it (C119)", async () => {
    await (await edge.request(CHAT, { body: question })).text();
    const via = String(endpoint.seen[0]?.headers["x-steerage-via"]);
    const answer = await fetch(`${await edge.origin()}${CHAT}`, {
      method: "POST",
      body: JSON.stringify(question),
      headers: { "content-type": "application/json", authorization: `Bearer ${edge.key}`, "x-steerage-via": via },
    });
    expect([answer.status, (await errorBodyOf(answer)).code]).toEqual([508, "loop_detected"]);
    expect(endpoint.seen).toHaveLength(1);
  });

  it("takes a host's report and serves its model from then on", async () => {
    const report = {
      protocol: 1,
      host: "gpu-1",
      epoch: 1,
      seq: 1,
      at: Date.now(),
      url: "http://127.0.0.1:1",
      labels: {},
      replicas: [
        {
          id: "r1",
          model: "steered",
          engine: "native",
          state: "ready",
          slots: 8,
          in_flight: 0,
          in_flight_by_edge: {},
          waiting: 0,
          free_kv_cells: 1,
          total_kv_cells: 1,
          tokens_per_second: 0,
          prefill_tokens_per_second: 0,
          context_length: 512,
          capabilities: ["chat"],
          saes: [{ id: "s", digest: "00", layer: 1, hook_point: "blocks.1.hook_resid_post", d_sae: 64 }],
        },
      ],
      ended: [],
      counters: [],
      gpus: [],
      memory: { total_bytes: 1, free_bytes: 1 },
      disk: null,
      weights: [],
      draining: false,
    };
    const refused = await edge.request("/agent/v1/reports", { body: report });
    expect(refused.status).toBe(401);
    const response = await edge.request("/agent/v1/reports", { body: report, key: edge.hostToken });
    expect(response.status).toBe(200);
    expect(await response.json()).toMatchObject({ edge: "worker-edge", ack_seq: 1, keys: [{ crv: "Ed25519" }] });
    const list = modelListSchema.parse(await (await edge.request("/v1/models")).json());
    expect(list.data.find(({ id }) => id === "steered")?.saes).toEqual([
      { id: "s", layer: 1, hook_point: "blocks.1.hook_resid_post", features: 64, loaded: true },
    ]);
  });
});

describe("the edge inside workerd, whose database goes away", () => {
  it("keeps the row in its object and writes it when the database is back", async () => {
    const endpoint = await ScriptedEndpoint.start();
    const edge = await EdgeOnWorkers.start({
      auth: { enabled: false },
      endpoints: [{ id: "other", url: endpoint.url, models: ["m"] }],
    });
    try {
      // Prices and budgets are known from here on.
      expect((await edge.request(CHAT, { body: question })).status).toBe(200);
      await edge.stopDatabase();
      const response = await edge.request(CHAT, { body: question });
      expect(response.status).toBe(200);
      expect(await (await edge.request("/ready")).json()).toMatchObject({ status: "degraded", store: "away" });
      await edge.startDatabase();
      const requestId = response.headers.get("x-request-id");
      await until("the row is stored", async () => (await edge.rows()).some((row) => row.requestId === requestId));
      expect(await edge.rows()).toHaveLength(2);
    } finally {
      await edge.stop();
      await endpoint.stop();
    }
  });
});

describe("keys inside workerd", () => {
  it("that are known go on working while the database is away, and are refused soon after they were revoked (C083)", async () => {
    const endpoint = await ScriptedEndpoint.start();
    const edge = await EdgeOnWorkers.start({ endpoints: [{ id: "other", url: endpoint.url, models: ["m"] }] });
    try {
      expect((await edge.request(CHAT, { body: question })).status).toBe(200);
      await edge.stopDatabase();
      expect((await edge.request(CHAT, { body: question })).status).toBe(200);
      const unknown = await edge.request("/v1/models", { key: newApiKey(randomBytes).text });
      expect([unknown.status, (await errorBodyOf(unknown)).code]).toEqual([503, "authentication_unavailable"]);
      expect(Number(unknown.headers.get("retry-after"))).toBeGreaterThanOrEqual(1);
      await edge.startDatabase();
      await edge.revoke(edge.key);
      await until("it is refused", async () => (await edge.request("/v1/models")).status === 401, 5_000);
    } finally {
      await edge.stop();
      await endpoint.stop();
    }
  });
});

describe("budgets inside workerd", () => {
  const keySchema = z.object({ scopes: z.array(z.object({ budgets: z.array(z.object({ spent_usd: z.string() })) })) });

  it("go on from what was spent before, and are charged with what a machine reports of an answer that was cut, not with the edge's own count (C093)", async () => {
    const machine = await ScriptedEndpoint.start();
    const edge = await EdgeOnWorkers.start(
      { name: "worker-edge", auth: { default_price: { prompt_per_1k: 0, completion_per_1k: 1 } } },
      { budgetNanoUsd: "1000000000" },
      async (store, keyId) => {
        const former = { account: "default", project: "test", keyId, costNanoUsd: "700" };
        await store.record(batchOf({ usage: [usageRow("req_before", former)] }));
      },
    );
    machine.script = (_request, response) => {
      response.writeHead(200, { "content-type": "text/event-stream" });
      const writing = setInterval(() => response.write(chunkText({ content: "word " })), 20);
      response.once("close", () => clearInterval(writing));
    };
    const report = async (seq: number, ended: readonly EndedRequest[]): Promise<void> => {
      const body = hostReport({ host: "gpu-1", url: machine.url, seq, at: Date.now(), ended: [...ended] });
      expect((await edge.request("/agent/v1/reports", { body, key: edge.hostToken })).status).toBe(200);
    };
    const spent = async (): Promise<string | undefined> =>
      keySchema.parse(await (await edge.request("/v1/key")).json()).scopes[0]?.budgets[0]?.spent_usd;
    try {
      await report(1, []);
      expect(await spent()).toBe("0.0000007");
      const leaving = new AbortController();
      const answer = await fetch(`${await edge.origin()}${CHAT}`, {
        method: "POST",
        body: JSON.stringify({ ...question, stream: true }),
        headers: { "content-type": "application/json", authorization: `Bearer ${edge.key}` },
        signal: leaving.signal,
      });
      expect(answer.status).toBe(200);
      await answer.body?.getReader().read();
      leaving.abort();
      await machine.seen[0]?.aborted;
      await until("its own count is charged", async () => (await spent()) !== "0.0000007");
      const requestId = answer.headers.get("x-request-id") ?? "";
      const counts = { computed_prompt: 9, cached_prompt: 0, computed_completion: 500 };
      await report(2, [endedRequest(requestId, { ...counts, edge: "worker-edge", epoch: 1, outcome: "cancelled" })]);
      await until("the machine's count is charged", async () => (await spent()) === "0.0000012");
      await until("the row says the same", async () =>
        (await edge.rows()).some((row) => row.requestId === requestId && row.costNanoUsd === "500"),
      );
    } finally {
      await edge.stop();
      await machine.stop();
    }
  });
});
