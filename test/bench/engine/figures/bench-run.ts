import type { BenchFlags } from "../flags.ts";
import type { Numbers } from "../workload.ts";

/** What every figure is given. */
export interface BenchRun {
  readonly flags: BenchFlags;
  readonly numbers: Numbers;
  /** Progress, on stderr. */
  readonly say: (text: string) => void;
}
