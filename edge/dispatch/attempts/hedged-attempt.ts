import type { AdmitRequest } from "../../ports/coordinator.ts";
import { AnswerRace, type RaceLane } from "./answer-race.ts";
import { ClaimedAttempt, type ClaimedAttemptOptions } from "./claimed-attempt.ts";
import type { MadeAttempt } from "./made-attempt.ts";
import { isOver } from "./run-context.ts";

export type HedgeableAttempt = Omit<ClaimedAttemptOptions, "answer"> & {
  /** What the second machine is asked for; under another attempt's number. */
  readonly hedgeRequest: AdmitRequest;
};

interface Running {
  readonly lane: RaceLane;
  readonly ended: Promise<MadeAttempt | null>;
  readonly lose: () => void;
}

/**
 * An attempt that is joined by a second one on another machine when no byte came by the time in which 95 of 100 of its
 * model's streams began. The first to bring a byte answers, the other is cancelled in the same tick. Answers with what
 * was made, the one that counts last; nothing where it was given up before anything was sent.
 */
export async function hedgedAttempt(options: HedgeableAttempt): Promise<readonly MadeAttempt[]> {
  const { context, link } = options;
  const { deps, hedges, answer } = context;
  const slowAfterMs = hedges.slowAfterMs(link.model.id);
  if (slowAfterMs === null) {
    const made = await new ClaimedAttempt({ ...options, answer }).run();
    return made === null ? [] : [made];
  }
  const race = new AnswerRace(answer);
  const first = begun(race, options);
  let joining: Promise<Running | null> = Promise.resolve(null);
  const cancelTimer = deps.clock.after(slowAfterMs, () => {
    joining = joined(race, options);
  });
  let made: MadeAttempt | null = null;
  let second: Running | null = null;
  try {
    made = await first.ended;
    // An answer without a single byte has won too.
    if (made?.result.kind === "completed") first.lane.win();
  } finally {
    cancelTimer();
    second = await joining;
    if (made === null || first.lane.state === "won" || isOver(context)) second?.lose();
  }
  if (second === null) return made === null ? [] : [made];
  const other = await second.ended;
  if (other?.result.kind === "completed") second.lane.win();
  if (other === null) return made === null ? [] : [made];
  if (second.lane.state === "won") return made === null ? [other] : [made, other];
  // Whatever became of it: it was a second machine for what the first one did, or failed to do.
  const beside = { ...other, lostRace: true };
  return made === null ? [beside] : [beside, made];
}

/** Null where there is no budget, no second machine, or no need any more. Never rejects. */
async function joined(race: AnswerRace, options: HedgeableAttempt): Promise<Running | null> {
  const { context, link, hedgeRequest } = options;
  const { deps, hedges, state, request } = context;
  const { id, pool } = link.model;
  if (race.isDecided || isOver(context) || !hedges.allows(id)) return null;
  hedges.spend(id);
  const attempt = state.begun + 1;
  const failed = (thrown: unknown): null => {
    deps.logger.error("a second machine could not be asked", { request_id: request.requestId }, thrown);
    return null;
  };
  const decision = await deps.coordinator.admit({ ...hedgeRequest, attempt, hedge: true }).catch(failed);
  if (decision?.kind !== "claimed") {
    hedges.refund(id);
    return null;
  }
  state.begun = attempt;
  const { claim, why = null } = decision;
  if (race.isDecided || isOver(context)) {
    hedges.refund(id);
    await deps.coordinator.settle({ pool, claimId: claim.claimId, result: "cancelled" }).catch(failed);
    return null;
  }
  const second = begun(race, { ...options, claim, why, attempt });
  return { ...second, ended: second.ended.catch(failed) };
}

function begun(race: AnswerRace, options: Omit<ClaimedAttemptOptions, "answer">): Running {
  const started: { attempt: ClaimedAttempt | null } = { attempt: null };
  const lose = (): void => started.attempt?.lose();
  const lane = race.lane(lose);
  started.attempt = new ClaimedAttempt({ ...options, answer: lane });
  return { lane, lose, ended: started.attempt.run() };
}
