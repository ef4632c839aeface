import { z } from "zod";
import { layerOfHookPoint } from "../../shared/steering/hook-points.ts";
import { SaeFileError } from "./sae-file-error.ts";
import type { SaeArchitecture, SaeConfig } from "./sae-files.ts";

/** A SAELens configuration, with the rules that its tensors are used by. */
export interface SaeLensConfig extends SaeConfig {
  readonly applyDecoderBiasToInput: boolean;
  readonly normalization: "none" | "expected_average_only_in" | "layer_norm" | "constant_norm";
  /** Features that stay active, for topk. */
  readonly activeCount: number | null;
  /** Topk chooses by p·‖W_dec row‖. */
  readonly rescaledByDecoderNorm: boolean;
  /** Whether a tensor scaling_factor counts; null where the file does not say. */
  readonly scalesFeatures: boolean | null;
}

const about = {
  hook_name: z.string().nullish(),
  /** The name before SAELens 3. */
  hook_point: z.string().nullish(),
  hook_head_index: z.int().nullish(),
  model_name: z.string().nullish(),
  context_size: z.int().min(1).nullish(),
};
const fileSchema = z.looseObject({
  ...about,
  architecture: z.string().nullish(),
  d_in: z.int().min(1),
  d_sae: z.int().min(1),
  k: z.int().min(1).nullish(),
  apply_b_dec_to_input: z.boolean().nullish(),
  normalize_activations: z.union([z.string(), z.boolean()]).nullish(),
  reshape_activations: z.string().nullish(),
  rescale_acts_by_decoder_norm: z.boolean().nullish(),
  finetuning_scaling_factor: z.boolean().nullish(),
  activation_fn_str: z.string().nullish(),
  activation_fn: z.string().nullish(),
  activation_fn_kwargs: z.looseObject({ k: z.int().min(1).nullish() }).nullish(),
  /** SAELens 6 and later keep everything about the model in here. */
  metadata: z.looseObject(about).nullish(),
});
type SaeLensFile = z.infer<typeof fileSchema>;

const ARCHITECTURES: readonly SaeArchitecture[] = ["standard", "gated", "jumprelu", "topk"];
/** `true` and `false` are what the earliest versions wrote. */
const NORMALIZATIONS: ReadonlyMap<string | boolean, SaeLensConfig["normalization"]> = new Map<
  string | boolean,
  SaeLensConfig["normalization"]
>([
  ["none", "none"],
  [false, "none"],
  ["expected_average_only_in", "expected_average_only_in"],
  [true, "expected_average_only_in"],
  ["layer_norm", "layer_norm"],
  ["constant_norm_rescale", "constant_norm"],
]);

/**
 * Reads a SAELens cfg.json, flat (before 6) or nested. What would need other maths than ours is refused by name:
 * a wrong answer would look like a right one. Throws `SaeFileError`.
 */
export function readSaeLensConfig(document: unknown, file: string): SaeLensConfig {
  const read = fileSchema.safeParse(document);
  if (!read.success) {
    const issue = read.error.issues[0];
    throw new SaeFileError(
      file,
      `is not a SAELens configuration (${issue?.path.join(".") ?? ""}: ${issue?.message ?? ""})`,
    );
  }
  const cfg = read.data;
  const architecture = architectureOf(cfg, file);
  const mode = cfg.normalize_activations ?? "none";
  const normalization = NORMALIZATIONS.get(mode);
  if (normalization === undefined) {
    throw new SaeFileError(
      file,
      `has normalize_activations '${mode}'; 'none', 'expected_average_only_in', 'layer_norm' and 'constant_norm_rescale' can be used`,
    );
  }
  const reshape = cfg.reshape_activations ?? "none";
  if (reshape !== "none") throw new SaeFileError(file, `has reshape_activations '${reshape}'; only 'none' can be used`);
  const activeCount = architecture === "topk" ? (cfg.k ?? cfg.activation_fn_kwargs?.k ?? null) : null;
  if (architecture === "topk" && (activeCount === null || activeCount > cfg.d_sae)) {
    throw new SaeFileError(file, `is a topk SAE with k ${activeCount ?? "not given"}; it must be 1 to ${cfg.d_sae}`);
  }
  return {
    format: "saelens",
    architecture,
    embeddingWidth: cfg.d_in,
    featureCount: cfg.d_sae,
    ...placeOf(cfg, file),
    modelName: cfg.metadata?.model_name ?? cfg.model_name ?? null,
    contextTokens: cfg.metadata?.context_size ?? cfg.context_size ?? null,
    applyDecoderBiasToInput: cfg.apply_b_dec_to_input ?? true,
    normalization,
    activeCount,
    rescaledByDecoderNorm: cfg.rescale_acts_by_decoder_norm ?? false,
    scalesFeatures: cfg.finetuning_scaling_factor ?? null,
  };
}

/** Before 6 a topk SAE was a standard one with another activation function. */
function architectureOf(cfg: SaeLensFile, file: string): SaeArchitecture {
  const named = cfg.architecture ?? "standard";
  const activation = cfg.activation_fn_str ?? cfg.activation_fn ?? "relu";
  const architecture = named === "standard" && activation === "topk" ? "topk" : named;
  const known = ARCHITECTURES.find((one) => one === architecture);
  if (known === undefined) {
    throw new SaeFileError(file, `has architecture '${named}'; ${ARCHITECTURES.join(", ")} can be used`);
  }
  if (activation !== "relu" && !(known === "topk" && activation === "topk")) {
    throw new SaeFileError(file, `has activation function '${activation}'; a ${known} SAE must have 'relu'`);
  }
  if (known !== "topk" && cfg.rescale_acts_by_decoder_norm === true) {
    throw new SaeFileError(file, `has rescale_acts_by_decoder_norm, which a ${known} SAE does not have`);
  }
  return known;
}

function placeOf(cfg: SaeLensFile, file: string): { hookPoint: string; layer: number } {
  const hookPoint = cfg.metadata?.hook_name ?? cfg.hook_name ?? cfg.hook_point;
  if (hookPoint === null || hookPoint === undefined) throw new SaeFileError(file, "names no hook point (hook_name)");
  const layer = layerOfHookPoint(hookPoint);
  const head = cfg.metadata?.hook_head_index ?? cfg.hook_head_index;
  if (layer === null || (head !== null && head !== undefined)) {
    throw new SaeFileError(file, `has hook point '${hookPoint}'; only the residual stream after a block can be hooked`);
  }
  return { hookPoint, layer };
}
