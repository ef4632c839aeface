import type { LimitedScope, SpentMoney } from "../ports/limits.ts";
import type { Principal } from "../ports/principal.ts";
import type { SpentByKey, SpentRequest } from "../ports/usage-store.ts";
import { periodStartMs } from "./period.ts";

/** The scopes of a caller, narrowest first. */
export function scopesOf(principal: Principal): readonly LimitedScope[] {
  const [key, project, account] = scopeIds(principal);
  return [
    { id: key, limits: principal.keyLimits },
    { id: project, limits: principal.projectLimits },
    { id: account, limits: principal.accountLimits },
  ];
}

interface Spender {
  readonly account: string;
  readonly project: string;
  readonly keyId: string;
}

/** Ids of the scopes that pay for what a key spends, narrowest first. */
export function scopeIds({ account, project, keyId }: Spender): readonly [string, string, string] {
  return [`key:${keyId}`, `project:${project}`, `account:${account}`];
}

/** What to ask the store for at `nowMs`, Unix milliseconds; null is every account. */
export function spentRequest(nowMs: number, account: string | null): SpentRequest {
  return { monthStartMs: periodStartMs("month", nowMs), dayStartMs: periodStartMs("day", nowMs), account };
}

/**
 * What every key has cost until `nowMs` (Unix milliseconds), by account, for `Limits.addSpent`: what was spent today,
 * in the month before today, and before that, each at a time of that period.
 */
export function spendingOf(spent: readonly SpentByKey[], nowMs: number): Map<string, SpentMoney[]> {
  const [dayMs, monthMs] = [periodStartMs("day", nowMs), periodStartMs("month", nowMs)];
  const byAccount = new Map<string, SpentMoney[]>();
  for (const key of spent) {
    const scopes = scopeIds(key);
    const [all, month, day] = [BigInt(key.totalNanoUsd), BigInt(key.monthNanoUsd), BigInt(key.dayNanoUsd)];
    const parts: readonly [number, bigint][] = [
      [dayMs, day],
      [monthMs, month - day],
      [0, all - month],
    ];
    const money = byAccount.get(key.account) ?? [];
    byAccount.set(key.account, money);
    for (const [atMs, nanoUsd] of parts) if (nanoUsd !== 0n) money.push({ scopes, atMs, nanoUsd: nanoUsd.toString() });
  }
  return byAccount;
}
