import type { EdgeDeps } from "../../deps.ts";
import { dollars } from "../../limits/dollars.ts";
import { scopesOf } from "../../limits/scopes.ts";
import type { BudgetView, RateView, ScopeView } from "../../ports/limits.ts";
import type { HttpContext } from "../environment.ts";

/** What the calling key may still do: the limits of every scope that binds it, what is left, and when it begins anew. */
export function keyRoute(deps: EdgeDeps) {
  return async (c: HttpContext): Promise<Response> => {
    const principal = c.get("principal");
    const atMs = deps.clock.nowMs();
    const scopes = scopesOf(principal);
    const view = await deps.limits.inspect({ account: principal.account, scopes, atMs });
    return c.json(
      {
        object: "key",
        id: principal.keyId,
        project: principal.project,
        account: principal.account,
        highest_band: principal.highestBand,
        scopes: view.scopes.map((scope) => scopeEntry(scope, atMs)),
      },
      200,
      { "cache-control": "no-store" },
    );
  };
}

function scopeEntry({ id, requests, tokens, budgets }: ScopeView, atMs: number): object {
  const [kind, ...name] = id.split(":");
  return {
    scope: kind,
    name: name.join(":"),
    requests_per_minute: rateEntry(requests, atMs),
    tokens_per_minute: rateEntry(tokens, atMs),
    budgets: budgets.map(budgetEntry),
  };
}

function rateEntry(rate: RateView | null, atMs: number): object | null {
  if (rate === null) return null;
  return { limit: rate.limit, remaining: rate.remaining, resets_at: instant(atMs + Math.ceil(rate.resetMs)) };
}

/** Decimal dollars as text: a float would round them. */
function budgetEntry({ period, endsAtMs, ...nanoUsd }: BudgetView): object {
  const [limit, spent, reserved] = [
    BigInt(nanoUsd.limitNanoUsd),
    BigInt(nanoUsd.spentNanoUsd),
    BigInt(nanoUsd.reservedNanoUsd),
  ];
  const left = limit - spent - reserved;
  return {
    period,
    limit_usd: dollars(limit),
    spent_usd: dollars(spent),
    reserved_usd: dollars(reserved),
    remaining_usd: dollars(left > 0n ? left : 0n),
    resets_at: endsAtMs === null ? null : instant(endsAtMs),
  };
}

const instant = (atMs: number): string => new Date(atMs).toISOString();
