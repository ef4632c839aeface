import type { EdgeDeps } from "../deps.ts";
import { rateLimitHeaders } from "../dispatch/account/rate-limit-headers.ts";
import { scopesOf } from "../limits/scopes.ts";
import type { Principal } from "../ports/principal.ts";

/**
 * `x-ratelimit-*` as they stand, for an answer that took nothing. None where they cannot be told: nobody is refused or
 * kept waiting for their sake.
 */
export async function limitHeaders(
  { limits, clock }: Pick<EdgeDeps, "limits" | "clock">,
  principal: Principal,
): Promise<Readonly<Record<string, string>>> {
  const asked = { account: principal.account, scopes: scopesOf(principal), atMs: clock.nowMs() };
  const view = await limits.inspect(asked).catch(() => null);
  return view === null ? {} : rateLimitHeaders(view.state);
}
