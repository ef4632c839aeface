import type { NativeModel, NativeSae } from "../native/binding.ts";
import type { Fidelity } from "../../shared/protocol/report.ts";
import type { EngineOptions } from "../ports/engine-options.ts";
import type { AttachedSae } from "../sae/attached-sae.ts";
import type { FeatureNote } from "../sae/feature-metadata.ts";
import type { SaeArchitecture, SaeFormat } from "../sae/sae-files.ts";
import type { ChatPrompter } from "./openai/chat-prompt.ts";

/** An SAE in native memory beside what its plans need. */
export interface LoadedSae extends AttachedSae {
  readonly native: NativeSae;
  /** Null where there was no text to measure it on. */
  readonly fidelity: Fidelity | null;
  readonly about: SaeOrigin;
  /** What is known of its features. */
  readonly notes: ReadonlyMap<number, FeatureNote>;
}

/** Where an SAE comes from, and what was made of it on the way, for descriptions. */
export interface SaeOrigin {
  readonly format: SaeFormat;
  readonly architecture: SaeArchitecture;
  readonly folds: readonly string[];
  /** Never told to callers. */
  readonly folder: string;
}

/** The loaded model as the requests see it. */
export interface EngineModel {
  /** Public name. */
  readonly name: string;
  readonly native: NativeModel;
  readonly chat: ChatPrompter;
  /** Window of one request, prompt and completion together. */
  readonly contextLength: number;
  readonly saes: readonly LoadedSae[];
  /** Named steerings from the host's configuration. */
  readonly profiles: EngineOptions["profiles"];
  /** Whether callers may send a grammar of their own. */
  readonly allowsGrammar: boolean;
  readonly allowsEmbeddings: boolean;
  /** 0 to 2^32 - 1. */
  readonly randomSeed: () => number;
}
