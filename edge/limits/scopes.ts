import type { Principal } from "../ports/principal.ts";
import type { ReserveRequest } from "../ports/limits.ts";
import type { SpentByScope } from "../ports/usage-store.ts";

/** The scopes of a caller, narrowest first. */
export function scopesOf(principal: Principal): ReserveRequest["scopes"] {
  return [
    { id: keyScope(principal.keyId), limits: principal.keyLimits },
    { id: projectScope(principal.project), limits: principal.projectLimits },
  ];
}

/** Money by account and scope, for `Limits.seedSpent`; decimal text. */
export function spendingByScope(spent: readonly SpentByScope[]): Map<string, Record<string, string>> {
  const byAccount = new Map<string, Map<string, bigint>>();
  for (const { account, project, keyId, costNanoUsd } of spent) {
    const scopes = byAccount.get(account) ?? new Map<string, bigint>();
    byAccount.set(account, scopes);
    for (const scope of [keyScope(keyId), projectScope(project)]) {
      scopes.set(scope, (scopes.get(scope) ?? 0n) + BigInt(costNanoUsd));
    }
  }
  return new Map(
    [...byAccount].map(([account, scopes]) => [
      account,
      Object.fromEntries([...scopes].map(([scope, nanoUsd]) => [scope, nanoUsd.toString()])),
    ]),
  );
}

const keyScope = (keyId: string): string => `key:${keyId}`;
const projectScope = (project: string): string => `project:${project}`;
