import type { BudgetPeriod, RateLimitState, ReserveDecision } from "../ports/limits.ts";
import { dollars } from "./dollars.ts";
import type { Budget } from "./effective-scope.ts";
import { periodEndMs } from "./period.ts";
import { WINDOW_MS } from "./request-rate.ts";
import type { MoneyState } from "./scope-money.ts";

/** One limit that stands against a request. `waitMs` is null where waiting does not help. */
export type Block =
  | { readonly kind: "requests"; readonly scopeId: string; readonly limit: number; readonly waitMs: number }
  | {
      readonly kind: "tokens";
      readonly scopeId: string;
      readonly limit: number;
      readonly waitMs: number | null;
      /** Given where it can never fit. */
      readonly neededTokens?: number;
    }
  | {
      readonly kind: "budget";
      readonly scopeId: string;
      readonly budget: Budget;
      readonly why: "never" | "spent" | "reserved";
      readonly waitMs: number | null;
      readonly endsAtMs: number | null;
    };

const WINDOW_SECONDS = WINDOW_MS / 1_000;

/** Whether a budget stands against a request that may cost `costNanoUsd`; `heldMs` is how long one is held usually. */
export function budgetBlock(
  scopeId: string,
  budget: Budget,
  request: {
    readonly money: MoneyState;
    readonly costNanoUsd: bigint;
    readonly atMs: number;
    readonly heldMs: number;
  },
): Block | null {
  const { period, limitNanoUsd } = budget;
  const { money, costNanoUsd, atMs, heldMs } = request;
  const afterNanoUsd = money.spentNanoUsd + costNanoUsd;
  const endsAtMs = periodEndMs(period, atMs);
  const block = { kind: "budget", scopeId, budget, endsAtMs } as const;
  // A budget of nothing refuses even what costs nothing.
  if (limitNanoUsd === 0n || costNanoUsd > limitNanoUsd) return { ...block, why: "never", waitMs: null };
  if (afterNanoUsd > limitNanoUsd)
    return { ...block, why: "spent", waitMs: endsAtMs === null ? null : endsAtMs - atMs };
  if (afterNanoUsd + money.reservedNanoUsd > limitNanoUsd)
    return { ...block, why: "reserved", waitMs: Math.min(heldMs, WINDOW_MS) };
  return null;
}

/** By the limit that will stand longest, so that whoever waits as long as told finds no other in the way. */
export function refusalOf(blocks: readonly Block[], state: RateLimitState): ReserveDecision {
  const [worst] = blocks.toSorted((one, other) => (other.waitMs ?? Infinity) - (one.waitMs ?? Infinity) || 0);
  if (worst === undefined) throw new Error("nothing stands against this request");
  return {
    kind: "refused",
    code: worst.kind === "budget" ? "insufficient_quota" : "rate_limit_exceeded",
    message: messageOf(worst),
    retryAfterSeconds: retryAfterSeconds(worst),
    state,
  };
}

function retryAfterSeconds({ kind, waitMs }: Block): number | null {
  if (waitMs === null) return null;
  const seconds = Math.max(1, Math.ceil(waitMs / 1_000));
  return kind === "budget" ? seconds : Math.min(WINDOW_SECONDS, seconds);
}

function messageOf(block: Block): string {
  const [kind = "scope", ...name] = block.scopeId.split(":");
  const scope = `${kind} ${name.join(":")}`;
  if (block.kind === "requests") return `The limit of ${block.limit} requests per minute of ${scope} is reached.`;
  if (block.kind === "tokens") {
    const limit = `The limit of ${block.limit} tokens per minute of ${scope}`;
    return block.neededTokens === undefined
      ? `${limit} is reached.`
      : `${limit} can never fit this request, which needs ${block.neededTokens} tokens: shorten it or ask for fewer.`;
  }
  const { period, limitNanoUsd } = block.budget;
  const budget = `The budget of ${dollars(limitNanoUsd)} US dollars${PERIOD_TEXT[period]} of ${scope}`;
  if (block.why === "reserved")
    return `${budget} does not cover this request while others, for which a part of it is reserved, are running.`;
  const anew = block.endsAtMs === null || block.why === "never" ? "" : `; it begins anew at ${instant(block.endsAtMs)}`;
  return `${budget} does not cover this request${anew}.`;
}

const PERIOD_TEXT: Readonly<Record<BudgetPeriod, string>> = { day: " per day", month: " per month", total: "" };

const instant = (atMs: number): string => new Date(atMs).toISOString().replace(".000Z", "Z");
