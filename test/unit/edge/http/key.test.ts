import { describe, expect, it } from "vitest";
import { retryHeaders } from "../../../../shared/errors/retry-headers.ts";
import { z } from "zod";
import { createApp } from "../../../../edge/app.ts";
import { scopesOf } from "../../../../edge/limits/scopes.ts";
import { NO_SCOPE_LIMITS } from "../../../../edge/ports/limits.ts";
import type { Principal } from "../../../../edge/ports/principal.ts";
import { fakeEdge, GOOD_KEY, MODEL, PRINCIPAL } from "../../../support/edge-deps.ts";
import { MemoryLimits } from "../../../../edge/limits/limits.memory.ts";

const LIMITED: Principal = {
  ...PRINCIPAL,
  keyLimits: { ...NO_SCOPE_LIMITS, requestsPerMinute: 10, budgetDayNanoUsd: "5000000000" },
  projectLimits: { ...NO_SCOPE_LIMITS, tokensPerMinute: 1_000, budgetMonthNanoUsd: "70000000000" },
  accountLimits: { ...NO_SCOPE_LIMITS, requestsPerMinute: 4, budgetNanoUsd: "1" },
};

function setUp(principal: Principal) {
  const edge = fakeEdge();
  const limits = new MemoryLimits(edge.deps.clock, {
    requestsPerMinute: 0,
    tokensPerMinute: 0,
    reservationTtlMs: 600_000,
  });
  const authenticator = { authenticate: () => Promise.resolve(principal) };
  const app = createApp({ ...edge.deps, limits, authenticator });
  const headers = { authorization: `Bearer ${GOOD_KEY}`, "content-type": "application/json" };
  const get = (path: string) => app.request(path, { headers });
  const post = (path: string, body: unknown) =>
    app.request(path, { method: "POST", headers, body: JSON.stringify(body) });
  return { ...edge, limits, get, post };
}

/** Takes 100 tokens and 1.5 dollars as a request that runs, and settles one before it at 0.25 dollars. */
async function use(limits: MemoryLimits, atMs: number): Promise<void> {
  const request = {
    account: "acme",
    atMs,
    model: "m",
    scopes: scopesOf({ ...LIMITED, accountLimits: { ...LIMITED.accountLimits, budgetNanoUsd: null } }),
    inputTokensEstimate: 40,
    outputTokensLimit: 60,
    costBoundNanoUsd: "1500000000",
  };
  for (const requestId of ["r1", "r2"]) expect((await limits.reserve({ ...request, requestId })).kind).toBe("granted");
  const used = { totalTokens: 50, completionTokens: 10, costNanoUsd: "250000000" };
  await limits.settle({ account: "acme", reservationId: "r1", ...used });
}

describe("GET /v1/key", () => {
  it("tells every scope's limits, what is left of them and when they begin anew, and no secret", async () => {
    const { deps, limits, get } = setUp(LIMITED);
    await use(limits, deps.clock.nowMs());
    const response = await get("/v1/key");
    const text = await response.text();
    expect(text).not.toContain(GOOD_KEY.slice(-20));
    expect(response.headers.get("cache-control")).toBe("no-store");
    const inAMinute = { requests_per_minute: { limit: 10, remaining: 8, resets_at: "2026-01-01T00:00:12.000Z" } };
    const spent = { spent_usd: "0.25", reserved_usd: "1.5" };
    expect(JSON.parse(text)).toEqual({
      object: "key",
      id: "goodgoodgood",
      project: "search",
      account: "acme",
      highest_band: "default",
      scopes: [
        {
          scope: "key",
          name: "goodgoodgood",
          ...inAMinute,
          tokens_per_minute: null,
          budgets: [
            {
              period: "day",
              limit_usd: "5",
              ...spent,
              remaining_usd: "3.25",
              resets_at: "2026-01-02T00:00:00.000Z",
            },
          ],
        },
        {
          scope: "project",
          name: "search",
          requests_per_minute: null,
          tokens_per_minute: { limit: 1_000, remaining: 850, resets_at: "2026-01-01T00:00:09.000Z" },
          budgets: [
            {
              period: "month",
              limit_usd: "70",
              ...spent,
              remaining_usd: "68.25",
              resets_at: "2026-02-01T00:00:00.000Z",
            },
          ],
        },
        {
          scope: "account",
          name: "acme",
          requests_per_minute: { limit: 4, remaining: 2, resets_at: "2026-01-01T00:00:30.000Z" },
          tokens_per_minute: null,
          budgets: [{ period: "total", limit_usd: "0.000000001", ...spent, remaining_usd: "0", resets_at: null }],
        },
      ],
    });
  });

  it("takes nothing of any limit", async () => {
    const { get } = setUp(LIMITED);
    for (let turn = 0; turn < 20; turn += 1) expect((await get("/v1/key")).status).toBe(200);
    expect((await get("/v1/key")).headers.get("x-ratelimit-remaining-requests")).toBe("4");
  });
});

describe("the rate limits of a key", () => {
  const namesOf = (headers: Headers): string[] =>
    [...headers.keys()].filter((name) => name.startsWith("x-ratelimit-")).toSorted();

  it("stand on every answer to it, refusals included (C088)", async () => {
    const { deps, limits, get, post } = setUp(LIMITED);
    await use(limits, deps.clock.nowMs());
    const answers = [
      await get("/v1/models"),
      await get("/v1/models/nothing"),
      await get("/v1/key"),
      await get("/requests/nothing"),
      await get("/v1/saes"),
      await post("/v1/chat/completions", { model: "nothing", messages: [] }),
      await post("/v1/chat/completions", [1]),
      await post("/v1/embeddings", { model: MODEL.id, input: "x", max_tokens: -1 }),
    ];
    expect(answers.map(({ status }) => status)).toEqual([200, 404, 200, 404, 200, 404, 400, 400]);
    for (const { headers } of answers) {
      expect(namesOf(headers)).toEqual([
        "x-ratelimit-limit-requests",
        "x-ratelimit-limit-tokens",
        "x-ratelimit-remaining-requests",
        "x-ratelimit-remaining-tokens",
        "x-ratelimit-reset-requests",
        "x-ratelimit-reset-tokens",
      ]);
      expect(headers.get("x-ratelimit-remaining-requests")).toBe("2");
      expect(headers.get("x-ratelimit-reset-requests")).toBe("30s");
      expect(headers.get("x-ratelimit-remaining-tokens")).toBe("850");
    }
  });

  it("are left out where they cannot be told, and keep nobody waiting", async () => {
    const { deps, get } = setUp(LIMITED);
    const app = createApp({ ...deps, limits: { inspect: () => Promise.reject(new Error("away")) } });
    const response = await app.request("/v1/models", { headers: { authorization: `Bearer ${GOOD_KEY}` } });
    expect([response.status, namesOf(response.headers)]).toEqual([200, []]);
    expect(z.object({ object: z.string() }).parse(await (await get("/v1/key")).json()).object).toBe("key");
  });
});

describe("what a client is told about coming back", () => {
  it("is the wait, and not to sleep through one that is longer than a call should hang", () => {
    expect(retryHeaders(429, 7)).toEqual({ "retry-after": "7" });
    expect(retryHeaders(429, 86_399.5)).toEqual({ "retry-after": "86400", "x-should-retry": "false" });
    expect(retryHeaders(429, null)).toEqual({ "x-should-retry": "false" });
    expect(retryHeaders(400, null)).toEqual({});
  });
});
