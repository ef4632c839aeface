import type { SliceNeed } from "./edge-slices.ts";
import type { EffectiveScope } from "./effective-scope.ts";
import { periodEndMs, periodStartMs } from "./period.ts";

export interface PlannedRequest {
  readonly account: string;
  /** Unix milliseconds. */
  readonly atMs: number;
  readonly tokens: number;
  /** Nobody said how long the answer may be: half of the tokens must be there, the rest may become debt. */
  readonly isGuess: boolean;
  readonly costNanoUsd: bigint;
}

/** What a request takes of every limit that applies to it. */
export function sliceNeeds(scopes: readonly EffectiveScope[], request: PlannedRequest): SliceNeed[] {
  const { account, atMs, tokens, isGuess, costNanoUsd } = request;
  const project = nameOf(scopes, "project");
  const needs: SliceNeed[] = [];
  for (const { id: scope, requestsPerMinute, tokensPerMinute, budgets } of scopes) {
    if (requestsPerMinute !== null) {
      needs.push({ kind: "rate", scope, resource: "requests", perMinute: requestsPerMinute, amount: 1, needed: 1 });
    }
    if (tokensPerMinute !== null) {
      const amount = isGuess ? Math.min(tokens, tokensPerMinute) : tokens;
      const needed = isGuess ? Math.min(Math.ceil(tokens / 2), tokensPerMinute) : tokens;
      needs.push({ kind: "rate", scope, resource: "tokens", perMinute: tokensPerMinute, amount, needed });
    }
    for (const { period, limitNanoUsd } of budgets) {
      needs.push({
        kind: "budget",
        scope,
        period,
        path: pathOf(scope, account, project),
        startMs: periodStartMs(period, atMs),
        endMs: periodEndMs(period, atMs),
        limitNanoUsd,
        amountNanoUsd: costNanoUsd,
      });
    }
  }
  return needs;
}

function pathOf(scope: string, account: string, project: string): string[] {
  const [kind, name] = partsOf(scope);
  if (kind === "key") return [account, project, name];
  return kind === "project" ? [account, name] : [account];
}

const nameOf = (scopes: readonly { readonly id: string }[], wanted: string): string =>
  scopes.map(({ id }) => partsOf(id)).find(([kind]) => kind === wanted)?.[1] ?? "";

function partsOf(scope: string): [string, string] {
  const place = scope.indexOf(":");
  return [scope.slice(0, place), scope.slice(place + 1)];
}
