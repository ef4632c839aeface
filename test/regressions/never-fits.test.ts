// Root cause: every refusal by a limit carried Retry-After, those too that no wait can cure; the official clients obey it
// to the letter and repeat in vain.
import { describe, expect, it } from "vitest";
import { AccountLimits } from "../../edge/limits/account-limits.ts";
import { NO_SCOPE_LIMITS, type ReserveRequest, type ScopeLimits } from "../../edge/ports/limits.ts";
import { errorOf, manualBench } from "../support/dispatch-bench.ts";

const request = (limits: Partial<ScopeLimits>, outputTokensLimit: number | null): ReserveRequest => ({
  account: "a",
  requestId: "r",
  atMs: 0,
  model: "m",
  scopes: [{ id: "key:k1", limits: { ...NO_SCOPE_LIMITS, ...limits } }],
  inputTokensEstimate: 10,
  outputTokensLimit,
  costBoundNanoUsd: "5",
});
const decide = (limits: Partial<ScopeLimits>, outputTokensLimit: number | null) =>
  new AccountLimits({ requestsPerMinute: 0, tokensPerMinute: 0, reservationTtlMs: 60_000 }).reserve(
    request(limits, outputTokensLimit),
    0,
  );

describe("a request that can never fit", () => {
  it("its tokens per minute is told both numbers and not to wait", () => {
    expect(decide({ tokensPerMinute: 60 }, 500)).toMatchObject({
      kind: "refused",
      code: "rate_limit_exceeded",
      message:
        "The limit of 60 tokens per minute of key k1 can never fit this request, which needs 510 tokens: shorten it or ask for fewer.",
      retryAfterSeconds: null,
    });
    expect(decide({ tokensPerMinute: 510 }, 500).kind).toBe("granted");
    expect(decide({ tokensPerMinute: 60 }, null).kind).toBe("granted");
  });

  it.each(["0", "4"])("a budget of %s is not told to wait", (budgetNanoUsd) => {
    expect(decide({ budgetNanoUsd }, 1)).toMatchObject({ code: "insufficient_quota", retryAfterSeconds: null });
  });

  it.each(["rate_limit_exceeded", "insufficient_quota"] as const)(
    "is answered 429 %s without Retry-After, and clients are told not to repeat it",
    async (code) => {
      const { ask, limits } = await manualBench();
      const refusal = decide(code === "insufficient_quota" ? { budgetNanoUsd: "0" } : { tokensPerMinute: 60 }, 500);
      limits.refusal = refusal.kind === "refused" ? refusal : null;
      const { writer, done } = ask();
      await done;
      expect(writer.status).toBe(429);
      expect(errorOf(writer).code).toBe(code);
      expect(writer.headers["retry-after"]).toBeUndefined();
      expect(writer.headers["x-should-retry"]).toBe("false");
    },
  );
});
