import type { Labels } from "../routing/labels.ts";
import type { ScrapedEngine } from "./scraped-load.ts";

/** A machine named by hand in the configuration: any OpenAI-compatible server. It sends no reports. */
export interface StaticEndpoint {
  readonly id: string;
  /** Origin; a trailing `/v1` is accepted. */
  readonly url: string;
  /** What the server itself calls its models. */
  readonly models: readonly string[];
  /**
   * The pool that its models join, which is then the model's public name, so that a server with another name for the
   * same model is interchangeable with the rest. Null: each model is its own pool.
   */
  readonly pool: string | null;
  readonly weight: number;
  /** Lower is tried first. */
  readonly priority: number;
  readonly slots: number;
  /** Decides what its metrics are called; vLLM's names where it is not given. */
  readonly engine?: ScrapedEngine;
  readonly labels?: Labels;
}

/** What the operator says of a model beyond what its machines report. */
export interface ModelNote {
  readonly aliases: readonly string[];
  readonly description: string | null;
  readonly contextLength: number | null;
  readonly maxOutput: number | null;
  /** Models that answer in its stead, in order, those of its fallbacks included. */
  readonly fallbacks?: readonly string[];
  /** Only machines that carry these labels serve it. */
  readonly nodeSelector?: Labels;
  /** Kinds of requests that the operator says it can do, or cannot, whatever its machines report. */
  readonly can?: readonly string[];
  readonly lacks?: readonly string[];
}

export interface FleetSettings {
  /** This edge's own name, as hosts count requests by. */
  readonly edge: string;
  readonly reportEveryMs: number;
  /** Hosts silent for longer are not counted as ready; they are still tried where there is no other. */
  readonly unreachableAfterMs: number;
  /** Hosts silent for longer serve nothing any more. */
  readonly lostAfterMs: number;
  /** Digests of a pool that changed are sent at most this often. */
  readonly pushEveryMs: number;
  readonly endpoints: readonly StaticEndpoint[];
  /** By model name. */
  readonly models: Readonly<Record<string, ModelNote>>;
}
