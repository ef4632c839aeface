import { Hedges } from "./attempts/hedging.ts";
import { RetryBudgets } from "./retry-budget.ts";

/** What the requests of one process or isolate learn for each other: plain data, bounded, that any of them may use. */
export class DispatchMemory {
  readonly retries = new RetryBudgets();
  readonly hedges = new Hedges();
}
