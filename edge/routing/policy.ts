/** Weights of what a machine costs a request. All terms are seconds, so 1 takes each as it is. */
export interface ScoreWeights {
  readonly load: number;
  readonly kv: number;
  readonly slo: number;
}

/** What callers of a model were promised; null where nothing was. */
export interface SloTargets {
  readonly ttftMs: number | null;
  readonly tpotMs: number | null;
}

/** How machines of one pool are chosen: its model's routing profile and promise. */
export interface PoolPolicy {
  readonly weights: ScoreWeights;
  /** Off, neither prompts nor sessions tie requests to machines. */
  readonly affinity: boolean;
  readonly slo: SloTargets;
}

export const DEFAULT_POLICY: PoolPolicy = {
  weights: { load: 1, kv: 1, slo: 1 },
  affinity: true,
  slo: { ttftMs: null, tpotMs: null },
};
