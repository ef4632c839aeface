/**
 * Below this a step is so short that waiting for one another costs threads more than they save; on a busy machine it
 * costs many times over, since they wait by spinning.
 */
const SMALL_MODEL_PARAMETERS = 20_000_000;

/** Threads of a decode step: what was asked, else one for a very small model, else the machine's physical cores. */
export function threadCount(asked: number, parameterCount: number, cores: number): number {
  if (asked > 0) return asked;
  return parameterCount < SMALL_MODEL_PARAMETERS ? 1 : cores;
}
