import type { AskedAttempt } from "../../shared/protocol/answer.ts";
import type { EndedRequest } from "../../shared/protocol/report.ts";
import type { Clock } from "../../shared/time/clock.ts";
import { accountLabel } from "../ports/account-board.ts";
import type { EndedStore } from "./ended-store.ts";
import type { FormerLife } from "./former-life.ts";
import type { Front } from "./front.ts";
import type { Replica } from "./replica.ts";

export interface AskedAttemptsDeps {
  readonly epoch: number;
  readonly replicas: ReadonlyMap<string, Pick<Replica, "running">>;
  readonly ended: Pick<EndedStore, "add" | "has">;
  readonly front: Pick<Front, "isOutOfTheQuestion">;
  readonly former: FormerLife | null;
  readonly clock: Pick<Clock, "nowMs">;
}

/**
 * Ended entries for what an edge waits for and no engine of this life has to tell: zeros for a request that none ever
 * had, and of the life before this one what its engines left behind. Whatever else there is to tell is told anyway.
 */
export class AskedAttempts {
  readonly #deps: AskedAttemptsDeps;

  constructor(deps: AskedAttemptsDeps) {
    this.#deps = deps;
  }

  tell(edge: string, asked: AskedAttempt): void {
    const { epoch, ended, former } = this.#deps;
    if (ended.has(asked.request_id, asked.attempt)) return;
    if (asked.epoch === epoch) this.#tellOfThisLife(edge, asked);
    else if (former?.epoch === asked.epoch) this.#tellOfFormer(edge, asked, former);
  }

  /** Nobody will be told any more. */
  async close(): Promise<void> {
    await this.#deps.former?.forget();
  }

  #tellOfThisLife(edge: string, { request_id: requestId, attempt, replica }: AskedAttempt): void {
    const running = this.#deps.replicas.get(replica)?.running;
    if (running === undefined || running.has(requestId, attempt)) return;
    const names = { edge, requestId, attempt };
    if (this.#deps.front.isOutOfTheQuestion(names)) running.neverBegan(names, "exact");
  }

  #tellOfFormer(edge: string, asked: AskedAttempt, former: FormerLife): void {
    const { ended, clock } = this.#deps;
    const { request_id, attempt, replica, epoch } = asked;
    const account = former.accountOf(replica, accountLabel(request_id, attempt), clock.nowMs());
    if (account === undefined) return;
    const entry: EndedRequest = {
      request_id,
      attempt,
      edge,
      replica,
      epoch,
      ended_at: clock.nowMs(),
      computed_prompt: account?.computed_prompt ?? 0,
      cached_prompt: account?.cached_prompt ?? 0,
      computed_completion: account?.computed_completion ?? 0,
      outcome: "failed",
      exactness: "exact",
    };
    ended.add(entry);
  }
}
