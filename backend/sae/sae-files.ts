import type { SaeTensors } from "../native/binding.ts";

/** Who wrote the files; recognised by what is in them. */
export type SaeFormat = "saelens" | "gemma_scope" | "llama_scope" | "sparsify";
export type SaeArchitecture = "standard" | "gated" | "jumprelu" | "topk";

/** What an SAE says of itself. */
export interface SaeConfig {
  readonly format: SaeFormat;
  readonly architecture: SaeArchitecture;
  /** Width d of the residual stream. */
  readonly embeddingWidth: number;
  readonly featureCount: number;
  /** As the file names it, such as `blocks.1.hook_resid_post`; null where nothing names it. */
  readonly hookPoint: string | null;
  /** Block after whose output the SAE reads, zero based; null where nothing names it. */
  readonly layer: number | null;
  readonly modelName: string | null;
  /** Longest sequence it was trained on in tokens, where the file says so. */
  readonly contextTokens: number | null;
}

/** An SAE ready for use: everything that scales is folded into the tensors. */
export interface SaeFiles {
  readonly config: SaeConfig;
  /** For the native core, or for the reference encoder. */
  readonly tensors: SaeTensors;
  /**
   * F rows of d values: what one unit of feature i's activation adds to the residual stream. The stored decoder row,
   * unless `folds` names a factor.
   */
  readonly decoderRows: Float32Array;
  /** What was folded in, for descriptions: empty where activations and decoder rows are those of the file. */
  readonly folds: readonly string[];
  /** SHA-256 over the tensors and the rules of their use, in hex. */
  readonly digest: string;
}

/** What a family's reader makes of the files; the digest and the checks that all share come after it. */
export type SaeParts = Omit<SaeFiles, "digest">;
