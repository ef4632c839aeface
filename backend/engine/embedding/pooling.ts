import { ApiError } from "../../../shared/errors/api-error.ts";
import type { ModelInfo } from "../../native/binding.ts";

/** How the rows of an input become one vector. */
export const POOLINGS = ["mean", "cls", "last"] as const;
export type Pooling = (typeof POOLINGS)[number];

/** GGUF's numbers in `<architecture>.pooling_type`; 0 is none. */
const DECLARED: Readonly<Record<string, Pooling>> = { 1: "mean", 2: "cls", 3: "last" };

function declaredPooling({ architecture, metadata }: ModelInfo): Pooling | null {
  return DECLARED[metadata[`${architecture}.pooling_type`] ?? ""] ?? null;
}

/**
 * What a request gets: its own wish where the model allows it, else what the file declares, else the mean. The first
 * token of a causal model has seen nothing of the text, and the last one of an encoder is a mark like any other.
 */
export function poolingOf(wish: Pooling | null, info: ModelInfo): Pooling {
  const declared = declaredPooling(info);
  if (wish === null) return declared ?? "mean";
  const causal = info.metadata[`${info.architecture}.attention.causal`] !== "false";
  if (wish === "mean" || wish === declared || wish === (causal ? "last" : "cls")) return wish;
  throw new ApiError("invalid_value", {
    message: `'pooling': this model's vectors cannot be pooled by '${wish}'.`,
    param: "pooling",
  });
}
