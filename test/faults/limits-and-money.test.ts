import { afterAll, beforeAll, beforeEach, describe, expect, it } from "vitest";
import { NO_SCOPE_LIMITS, type ScopeLimits } from "../../edge/ports/limits.ts";
import { EdgeOnNode } from "../support/edge-on-node.ts";
import { errorBodyOf } from "../support/error-body.ts";
import { answerOfFive, chunkText, ScriptedEndpoint, type Script } from "../support/scripted-endpoint.ts";

const question = { model: "m", messages: [{ role: "user", content: "Count." }] };
const limitsOf = (more: Partial<ScopeLimits>): ScopeLimits => ({ ...NO_SCOPE_LIMITS, ...more });

let endpoint: ScriptedEndpoint;
let second: ScriptedEndpoint;
let edge: EdgeOnNode;
beforeAll(async () => {
  endpoint = await ScriptedEndpoint.start();
  second = await ScriptedEndpoint.start();
  edge = await EdgeOnNode.start({
    endpoints: [
      { id: "first", url: endpoint.url, models: ["m", "pair"], slots: 32 },
      { id: "second", url: second.url, models: ["pair"], slots: 32, priority: 1 },
    ],
    // One nano-dollar for each token of an answer: what is spent is counted to the last of them.
    auth: { flush_interval: "20ms", cache_ttl: "1ms", default_price: { prompt_per_1k: 0, completion_per_1k: 1 } },
    router: { failure_threshold: 1_000, cooldown: "1ms", timeouts: { generation: "1500ms" } },
    drain_timeout: "1s",
  });
});
afterAll(async () => {
  await edge.idle();
  await edge.remove();
  await Promise.all([endpoint.stop(), second.stop()]);
});
beforeEach(() => {
  endpoint.script = answerOfFive;
  endpoint.seen.length = 0;
  second.seen.length = 0;
});

const ask = (key: string, more: object = {}, signal?: AbortSignal): Promise<Response> =>
  edge.post(
    "/chat/completions",
    { ...question, ...more },
    { headers: { authorization: `Bearer ${key}` }, ...(signal === undefined ? {} : { signal }) },
  );

/** Whole or streamed, with this usage. */
const counting =
  (promptTokens: number, completionTokens: number): Script =>
  (request, response) => {
    const usage = {
      prompt_tokens: promptTokens,
      completion_tokens: completionTokens,
      total_tokens: promptTokens + completionTokens,
    };
    const base = { id: "chatcmpl-1", created: 1, model: "m" };
    if (request.body.includes('"stream":true')) {
      response.writeHead(200, { "content-type": "text/event-stream" });
      response.write(chunkText({ role: "assistant", content: "x" }) + chunkText({}, "stop"));
      const last = { ...base, object: "chat.completion.chunk", choices: [], usage };
      response.end(`data: ${JSON.stringify(last)}\n\ndata: [DONE]\n\n`);
    } else {
      const message = { role: "assistant", content: "x" };
      const choices = [{ index: 0, message, logprobs: null, finish_reason: "stop" }];
      response.writeHead(200, { "content-type": "application/json" });
      response.end(JSON.stringify({ ...base, object: "chat.completion", choices, usage }));
    }
  };

describe("a limit on tokens", () => {
  it.each([true, false])("counts what answers really used, whether streamed or not: %s (C087)", async (stream) => {
    endpoint.script = counting(45, 5);
    const key = await edge.newKey({ limits: limitsOf({ tokensPerMinute: 200 }) });
    const statuses: number[] = [];
    for (let call = 0; call < 5; call++) {
      const answer = await ask(key, { stream, max_tokens: 5 });
      statuses.push(answer.status);
      await answer.text();
    }
    expect(statuses).toEqual([200, 200, 200, 200, 429]);
  });
});

describe("a refusal by a limit (C088)", () => {
  it.each([
    ["requests", { requestsPerMinute: 1 }, "rate_limit_exceeded", /limit of 1 requests per minute/],
    ["tokens", { tokensPerMinute: 32 }, "rate_limit_exceeded", /limit of 32 tokens per minute/],
  ] as const)("of %s names it and its value, and says when to come back", async (what, limits, code, message) => {
    const key = await edge.newKey({ limits: limitsOf(limits) });
    const first = await ask(key, { max_tokens: 5 });
    const refused = await ask(key, { max_tokens: 5 });
    expect([first.status, refused.status]).toEqual([200, 429]);
    expect(await errorBodyOf(refused)).toMatchObject({
      code,
      type: "rate_limit_error",
      message: expect.stringMatching(message),
    });
    const seconds = Number(refused.headers.get("retry-after"));
    expect([Number.isInteger(seconds), seconds >= 1, seconds <= 60]).toEqual([true, true, true]);
    for (const answer of [first, refused]) {
      const [limit, left, reset] = ["limit", "remaining", "reset"].map((name) =>
        answer.headers.get(`x-ratelimit-${name}-${what}`),
      );
      expect(limit).toBe(String(Object.values(limits)[0]));
      expect(Number(left)).toBeGreaterThanOrEqual(0);
      expect(reset).toMatch(/^(?:\d+m)?(?:[\d.]+s|\d+ms)$/);
    }
  });

  it.each([
    ["in all", { budgetNanoUsd: "7" }, /budget of 0\.000000007/],
    ["of a day", { budgetDayNanoUsd: "7" }, /budget of 0\.000000007/],
  ] as const)(
    "of money %s is insufficient_quota, which clients do not repeat before it helps",
    async (_what, limits, message) => {
      const key = await edge.newKey({ limits: limitsOf(limits) });
      expect((await ask(key, { max_tokens: 5 })).status).toBe(200);
      const refused = await ask(key, { max_tokens: 5 });
      expect(refused.status).toBe(429);
      expect(await errorBodyOf(refused)).toMatchObject({
        code: "insufficient_quota",
        message: expect.stringMatching(message),
      });
      const seconds = refused.headers.get("retry-after");
      expect(seconds === null ? refused.headers.get("x-should-retry") : Number(seconds) >= 1).toBe(
        seconds === null ? "false" : true,
      );
    },
  );
});

describe("a machine's own refusal (C090)", () => {
  const told = async (headers: Record<string, string>): Promise<Response> => {
    endpoint.script = (_request, response) => {
      response.writeHead(429, {
        "content-type": "application/json",
        "x-ratelimit-remaining-requests": "0",
        ...headers,
      });
      response.end(JSON.stringify({ error: { message: "busy", type: "rate_limit_error", param: null, code: null } }));
    };
    const one = await EdgeOnNode.start({
      endpoints: [{ id: "first", url: endpoint.url, models: ["m"] }],
      auth: { default_rpm: 50, default_tpm: 0 },
      router: { admission: { queue_ttl: "100ms" } },
      drain_timeout: "1s",
    });
    try {
      return await one.post("/chat/completions", question);
    } finally {
      await one.remove();
    }
  };

  it.each([
    ["in seconds", "7", 7, 7],
    ["as a date", new Date(Date.now() + 3_600_000).toUTCString(), 3_500, 3_600],
    ["in words", "soon", 1, 1],
  ])("%s comes to the caller as whole seconds; the key's own limits stay its own", async (_what, text, least, most) => {
    const refused = await told({ "retry-after": text });
    expect(refused.status).toBe(429);
    expect(Number(refused.headers.get("retry-after"))).toBeGreaterThanOrEqual(least);
    expect(Number(refused.headers.get("retry-after"))).toBeLessThanOrEqual(most);
    expect(refused.headers.get("x-ratelimit-limit-requests")).toBe("50");
    expect(refused.headers.get("x-ratelimit-remaining-requests")).toBe("49");
  });
});

describe("a budget", () => {
  it("bounds an answer of which nobody knows how long it may get, as what was reserved for it", async () => {
    const sent = (): unknown => JSON.parse(endpoint.seen.at(-1)?.body ?? "null");
    const rich = await edge.newKey({ limits: limitsOf({ budgetMonthNanoUsd: "1000000" }) });
    expect((await ask(rich)).status).toBe(200);
    expect(sent()).toEqual({ ...question, max_tokens: 4_096 });
    expect((await ask(rich, { max_completion_tokens: 9_000 })).status).toBe(200);
    expect(sent()).toEqual({ ...question, max_completion_tokens: 9_000 });
    const short = await edge.newKey({ limits: limitsOf({ budgetMonthNanoUsd: "4095" }) });
    expect((await ask(short)).status).toBe(429);
    expect(endpoint.seen).toHaveLength(2);
    const free = await edge.newKey({ limits: NO_SCOPE_LIMITS });
    expect((await ask(free)).status).toBe(200);
    expect(sent()).toEqual(question);
  });

  it("is none when it is not given, nothing when it is 0, and helps at once when it is raised (C094)", async () => {
    const statuses = async (key: string): Promise<number[]> => {
      const both = [await ask(key, { max_tokens: 5 }), await ask(key, { max_tokens: 5 })];
      return both.map(({ status }) => status);
    };
    expect(await statuses(await edge.newKey())).toEqual([200, 200]);
    const key = await edge.newKey({ limits: limitsOf({ budgetNanoUsd: "0" }) });
    expect(await statuses(key)).toEqual([429, 429]);
    await edge.setLimits(key, { budgetNanoUsd: "5" });
    expect(await statuses(key)).toEqual([200, 429]);
    await edge.setLimits(key, { budgetNanoUsd: "10" });
    expect(await statuses(key)).toEqual([200, 429]);
    await edge.setLimits(key, { budgetNanoUsd: null });
    expect(await statuses(key)).toEqual([200, 200]);
  });

  it("counts what the ledger counts, to the last unit, whatever became of the calls and over a restart (C093)", async () => {
    const key = await edge.newKey({ project: "mixed" });
    endpoint.script = (request, response) => {
      if (request.body.includes('"good"')) answerOfFive(request, response);
      else if (request.body.includes('"bad"')) response.writeHead(400).end("{}");
      else if (request.body.includes('"broken"')) response.writeHead(500).end("{}");
      else if (request.body.includes('"cut"')) {
        response.writeHead(200, { "content-type": "text/event-stream" });
        for (const content of ["a", "b"]) response.write(chunkText({ content }));
      }
      // "slow" hears nothing until its time is up.
    };
    const statuses = new Set<number>();
    const round = async (): Promise<void> => {
      const leaving = new AbortController();
      const cut = await ask(key, { user: "cut", stream: true }, leaving.signal);
      let read = "";
      for await (const part of cut.body?.pipeThrough(new TextDecoderStream()) ?? []) {
        read += part;
        if (read.includes('"b"')) leaving.abort();
        if (leaving.signal.aborted) break;
      }
      const others = await Promise.all(["good", "bad", "broken", "slow", "good"].map((user) => ask(key, { user })));
      for (const { status } of others) statuses.add(status);
    };
    /** What the rows cost, once the last of them is stored. */
    const spent = async (): Promise<bigint> => {
      await edge.idle();
      await edge.rowOf(await ask(key, { user: "good" }));
      const rows = (await edge.rows()).filter(({ project }) => project === "mixed");
      return rows.reduce((sum, row) => sum + BigInt(row.costNanoUsd), 0n);
    };
    /** As many calls of one unit as the budget leaves room for. */
    const leftOf = async (budget: bigint): Promise<number> => {
      await edge.setLimits(key, { budgetNanoUsd: budget.toString() });
      endpoint.script = counting(1, 1);
      let calls = 0;
      while ((await ask(key, { max_tokens: 1 })).status === 200) calls++;
      return calls;
    };
    const script = endpoint.script;
    await Promise.all(Array.from({ length: 8 }, round));
    expect(statuses).toEqual(new Set([200, 400, 502, 504]));
    const before = await spent();
    expect(before).toBeGreaterThanOrEqual(80n);
    expect(await leftOf(before + 7n)).toBe(7);

    await edge.restart();
    await edge.setLimits(key, { budgetNanoUsd: null });
    endpoint.script = script;
    await Promise.all(Array.from({ length: 2 }, round));
    expect(await leftOf((await spent()) + 5n)).toBe(5);
  });
});

describe("a request that a second machine answered", () => {
  it("is one row; the first attempt stands beside it with nothing (C097)", async () => {
    endpoint.script = (_request, response) => response.writeHead(503, { "retry-after": "1" }).end("{}");
    second.script = answerOfFive;
    const answer = await ask(edge.key, { model: "pair" });
    expect([answer.status, answer.headers.get("x-steerage-route")]).toEqual([200, "second/pair;attempts=2"]);
    const row = await edge.rowOf(answer);
    expect(row).toMatchObject({ outcome: "completed", backend: "second", completionTokens: 5, costNanoUsd: "5" });
    expect((await edge.rows()).filter(({ requestId }) => requestId === row.requestId)).toHaveLength(1);
    expect([endpoint.seen.length, second.seen.length]).toEqual([1, 1]);
  });
});

describe("a machine's refusal in words of its own", () => {
  it.each([
    [422, { detail: [{ msg: "field required" }] }, "invalid_value"],
    [404, "<html>nothing here</html>", "model_not_found"],
  ])("keeps its status %s and gets the envelope, since asking again does not help", async (status, body, code) => {
    endpoint.script = (_request, response) => response.writeHead(status).end(JSON.stringify(body));
    const refused = await ask(edge.key);
    expect([refused.status, refused.headers.get("retry-after")]).toEqual([status, null]);
    expect(await errorBodyOf(refused)).toMatchObject({ code, message: expect.stringContaining(String(status)) });
    expect(endpoint.seen).toHaveLength(1);
  });
});
