import { z } from "zod";
import { layerOfHookPoint } from "../../shared/steering/hook-points.ts";
import { SaeFileError } from "./sae-file-error.ts";

/** What the maths of an SAE needs from its cfg.json. */
export interface SaeConfig {
  readonly architecture: "standard" | "jumprelu";
  /** Width d of the residual stream. */
  readonly embeddingWidth: number;
  readonly featureCount: number;
  /** As the file names it, such as `blocks.1.hook_resid_post`. */
  readonly hookPoint: string;
  /** Block after whose output the SAE reads, zero based. */
  readonly layer: number;
  readonly applyDecoderBiasToInput: boolean;
  readonly modelName: string | null;
}

const about = {
  hook_name: z.string().nullish(),
  /** The name before SAELens 3. */
  hook_point: z.string().nullish(),
  hook_head_index: z.int().nullish(),
  model_name: z.string().nullish(),
};
const fileSchema = z.looseObject({
  ...about,
  architecture: z.string().nullish(),
  d_in: z.int().min(1),
  d_sae: z.int().min(1),
  apply_b_dec_to_input: z.boolean().nullish(),
  normalize_activations: z.union([z.string(), z.boolean()]).nullish(),
  reshape_activations: z.string().nullish(),
  activation_fn_str: z.string().nullish(),
  activation_fn: z.string().nullish(),
  /** SAELens 6 and later keep everything about the model in here. */
  metadata: z.looseObject(about).nullish(),
});

/**
 * Reads a SAELens cfg.json, flat (before 6) or nested. What would need other maths than ours is refused by name:
 * a wrong answer would look like a right one. Throws `SaeFileError`.
 */
export function readSaeConfig(document: unknown, file: string): SaeConfig {
  const read = fileSchema.safeParse(document);
  if (!read.success) {
    const issue = read.error.issues[0];
    throw new SaeFileError(
      file,
      `is not a SAELens configuration (${issue?.path.join(".") ?? ""}: ${issue?.message ?? ""})`,
    );
  }
  const cfg = read.data;
  const architecture = cfg.architecture ?? "standard";
  if (architecture !== "standard" && architecture !== "jumprelu") {
    throw new SaeFileError(file, `has architecture '${architecture}'; 'standard' and 'jumprelu' can be used`);
  }
  const normalize = cfg.normalize_activations ?? "none";
  if (normalize !== "none" && normalize !== false) {
    throw new SaeFileError(file, `has normalize_activations '${normalize}'; only 'none' can be used`);
  }
  const reshape = cfg.reshape_activations ?? "none";
  if (reshape !== "none") throw new SaeFileError(file, `has reshape_activations '${reshape}'; only 'none' can be used`);
  const activation = cfg.activation_fn_str ?? cfg.activation_fn ?? "relu";
  if (architecture === "standard" && activation !== "relu") {
    throw new SaeFileError(file, `has activation function '${activation}'; a standard SAE must have 'relu'`);
  }
  const hookPoint = cfg.metadata?.hook_name ?? cfg.hook_name ?? cfg.hook_point;
  if (hookPoint === null || hookPoint === undefined) throw new SaeFileError(file, "names no hook point (hook_name)");
  const layer = layerOfHookPoint(hookPoint);
  const head = cfg.metadata?.hook_head_index ?? cfg.hook_head_index;
  if (layer === null || (head !== null && head !== undefined)) {
    throw new SaeFileError(file, `has hook point '${hookPoint}'; only the residual stream after a block can be hooked`);
  }
  return {
    architecture,
    embeddingWidth: cfg.d_in,
    featureCount: cfg.d_sae,
    hookPoint,
    layer,
    applyDecoderBiasToInput: cfg.apply_b_dec_to_input ?? true,
    modelName: cfg.metadata?.model_name ?? cfg.model_name ?? null,
  };
}
