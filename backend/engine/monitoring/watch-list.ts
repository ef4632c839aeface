import type { RequestLabel } from "../loop/generation-task.ts";
import type { SensedRows } from "../../native/binding.ts";
import type { MonitoringOptions, WatchListDefinition } from "../../ports/watch-lists.ts";
import type { AttachedSae } from "../../sae/attached-sae.ts";
import { EventHistory, type EventContext } from "./event-history.ts";
import { FeatureWindows } from "./feature-windows.ts";

/** A row of a request in which a feature was above the threshold. */
export interface Crossing {
  readonly position: number;
  readonly feature: number;
  readonly value: number;
}

/** One watch list of this engine, with what it has seen since it was set. */
export class WatchList {
  readonly definition: WatchListDefinition;
  readonly windows: FeatureWindows;
  readonly history: EventHistory;
  readonly sinceMs: number;
  /** Which weights it has read; null before it has read any. */
  #read: string | null = null;
  /** Crossings that were counted and are no events, since their request had had its share. */
  suppressed = 0;

  constructor(definition: WatchListDefinition, options: Pick<MonitoringOptions, "history">, nowMs: number) {
    this.definition = definition;
    this.windows = new FeatureWindows(definition.features, definition.threshold);
    this.history = new EventHistory(options.history);
    this.sinceMs = nowMs;
  }

  /** Whether what it reads from now on goes with what it has read: not so after its SAE was swapped for another one. */
  goesOnWith({ digest, layer }: Pick<AttachedSae, "digest" | "layer">): boolean {
    const weights = `${digest}@${layer}`;
    this.#read ??= weights;
    return this.#read === weights;
  }

  tell(crossing: Crossing, of: CrossingOrigin): void {
    const { label, promptTokens, nowMs, context } = of;
    this.history.add({
      at_ms: nowMs,
      request_id: label?.requestId ?? null,
      attempt: label?.attempt ?? null,
      part: crossing.position < promptTokens ? "prompt" : "completion",
      ...crossing,
      ...(context === null ? {} : { context }),
    });
  }
}

/** Where a crossing comes from. */
export interface CrossingOrigin {
  readonly label: RequestLabel | null;
  readonly promptTokens: number;
  readonly nowMs: number;
  readonly context: EventContext | null;
}

/** Every entry above the threshold, in the order of positions. */
export function crossingsIn(rows: SensedRows, threshold: number | null): Crossing[] {
  if (threshold === null) return [];
  const crossings: Crossing[] = [];
  let entry = 0;
  rows.positions.forEach((position, row) => {
    for (let end = entry + (rows.counts[row] ?? 0); entry < end; entry += 1) {
      const value = rows.values[entry] ?? 0;
      if (value > threshold) crossings.push({ position, feature: rows.indices[entry] ?? 0, value });
    }
  });
  return crossings;
}
