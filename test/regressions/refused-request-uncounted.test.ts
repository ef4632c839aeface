// Root cause: settling gave back tokens and money of a request that the machine refused with 400, but not the request
// itself, so that a caller's mistakes used up his requests per minute; each was logged as a failure of the machine.
import { describe, expect, it } from "vitest";
import { AccountLimits } from "../../edge/limits/account-limits.ts";
import { NO_SCOPE_LIMITS, type ReserveRequest } from "../../edge/ports/limits.ts";
import { manualBench } from "../support/dispatch-bench.ts";

const refusal = { error: { message: "no", type: "invalid_request_error", param: "messages", code: "invalid_value" } };

describe("a request that a machine refuses for the caller's fault", () => {
  it.each([
    [400, true],
    [404, true],
    [503, false],
  ])("answered %i is uncounted: %s", async (status, uncounted) => {
    const { ask, exchange, limits, ledger } = await manualBench();
    const { done } = ask();
    (await exchange(0)).headers(status).text(JSON.stringify(refusal)).end();
    await done;
    expect(limits.settled[0]?.uncounted ?? false).toBe(uncounted);
    expect(limits.settled).toMatchObject([{ totalTokens: 0, costNanoUsd: "0" }]);
    expect(ledger.settled).toMatchObject([
      { outcome: "failed", attempts: [{ counts: { promptTokens: 0 }, unbilledReason: "failed_before_first_token" }] },
    ]);
  });

  it("gives back the request to every scope that counted it, and no more than that", () => {
    const limits = new AccountLimits({ requestsPerMinute: 0, tokensPerMinute: 0, reservationTtlMs: 60_000 });
    const scope = (id: string, requestsPerMinute: number) => ({
      id,
      limits: { ...NO_SCOPE_LIMITS, requestsPerMinute },
    });
    const request = (requestId: string): ReserveRequest => ({
      account: "a",
      requestId,
      atMs: 0,
      model: "m",
      scopes: [scope("key:k", 2), scope("project:p", 3)],
      inputTokensEstimate: 1,
      outputTokensLimit: 1,
      costBoundNanoUsd: "0",
    });
    const nothing = { account: "a", totalTokens: 0, completionTokens: 0, costNanoUsd: "0" };
    for (let turn = 0; turn < 20; turn++) {
      expect(limits.reserve(request(`r${turn}`), turn).kind).toBe("granted");
      limits.settle({ ...nothing, reservationId: `r${turn}`, uncounted: true }, turn);
    }
    expect(limits.reserve(request("a"), 20).kind).toBe("granted");
    limits.settle({ ...nothing, reservationId: "a" }, 20);
    expect(limits.reserve(request("b"), 20).kind).toBe("granted");
    expect(limits.reserve(request("c"), 20)).toMatchObject({ kind: "refused", code: "rate_limit_exceeded" });
  });
});
