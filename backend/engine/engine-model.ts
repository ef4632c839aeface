import type { NativeModel, NativeSae } from "../native/binding.ts";
import type { AttachedSae } from "../sae/attached-sae.ts";
import type { ChatPrompter } from "./openai/chat-prompt.ts";

/** An SAE in native memory beside what its plans need. */
export interface LoadedSae extends AttachedSae {
  readonly native: NativeSae;
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
  /** 0 to 2^32 - 1. */
  readonly randomSeed: () => number;
}
