import { inFlightOf, isFresh, type Candidate, type RoutingSettings } from "./candidate.ts";

/** A prompt token is computed this much faster than one is generated. */
const PROMPT_SHARE = 0.1;
/** Work of a request of which nothing is known, as those of other edges. */
export const TYPICAL_WORK = 512;
/** Seconds of delay that a half-full KV cache is worth. */
const KV_SECONDS = 0.15;
const FULLEST_KV = 0.99;

/** What a request costs a machine, in work tokens: those generated, and a share of those read. */
export function workOf(promptTokens: number, completionTokens: number): number {
  return promptTokens * PROMPT_SHARE + completionTokens;
}

/** What the score must know of a request. */
export interface ScoredRequest {
  /** Work tokens. */
  readonly work: number;
  /** Tokens that it is expected to generate. */
  readonly outputTokens: number;
  /** How long it has waited already. */
  readonly waitedMs: number;
}

export const TYPICAL_REQUEST: ScoredRequest = { work: TYPICAL_WORK, outputTokens: TYPICAL_WORK, waitedMs: 0 };

/** What speaks against a machine, each in seconds and as its profile weighs it. */
export interface ScoreTerms {
  /** Until it would have done what it has, and this request with it. */
  readonly load: number;
  /** Grows without bound as its KV cells run out. */
  readonly kv: number;
  /** By which it would miss what the model's callers were promised, going by what it lately took. */
  readonly slo: number;
}

export function termsOf(candidate: Candidate, request: ScoredRequest, settings: RoutingSettings): ScoreTerms {
  const { load, kv, slo } = settings.policy.weights;
  return {
    load: load * drainSeconds(candidate, request.work, settings),
    kv: kv * kvSeconds(candidate, settings),
    slo: slo * missedSeconds(candidate, request, settings),
  };
}

/** The less the better; all terms are seconds, so they add up. */
export function secondsOf(candidate: Candidate, request: ScoredRequest, settings: RoutingSettings): number {
  const { load, kv, slo } = termsOf(candidate, request, settings);
  return load + kv + slo;
}

function drainSeconds(candidate: Candidate, ownWork: number, settings: RoutingSettings): number {
  const others =
    inFlightOf(candidate, settings) - candidate.ownInFlight + (isFresh(candidate, settings) ? candidate.waiting : 0);
  const work = candidate.ownWork + others * TYPICAL_WORK + ownWork;
  const speed = candidate.workPerSecond * candidate.weight * candidate.warmth;
  return work / Math.max(speed, Number.EPSILON);
}

function kvSeconds(candidate: Candidate, settings: RoutingSettings): number {
  if (!isFresh(candidate, settings) || candidate.kvUse === null) return 0;
  const kv = Math.min(FULLEST_KV, Math.max(0, candidate.kvUse));
  return (KV_SECONDS * kv) / (1 - kv);
}

function missedSeconds({ pace }: Candidate, request: ScoredRequest, { policy }: RoutingSettings): number {
  if (pace === null) return 0;
  const { ttftMs, tpotMs } = policy.slo;
  const firstMs = late(request.waitedMs + pace.ttftMs, ttftMs);
  const furtherMs = pace.tpotMs === null ? 0 : late(pace.tpotMs, tpotMs) * request.outputTokens;
  return (firstMs + furtherMs) / 1_000;
}

function late(tookMs: number, promisedMs: number | null): number {
  return promisedMs === null ? 0 : Math.max(0, tookMs - promisedMs);
}
