import { basename } from "node:path";
import { z } from "zod";
import { residualPostHookPoint } from "../../shared/steering/hook-points.ts";
import { SaeFileError } from "./sae-file-error.ts";
import type { SaeParts } from "./sae-files.ts";
import type { SaeFolder } from "./sae-folder.ts";
import type { TensorTable } from "./tensor-table.ts";

const CONFIG_FILE = "cfg.json";
const TENSORS = ["encoder.weight", "encoder.bias", "W_dec", "b_dec"];

const fileSchema = z.looseObject({
  d_in: z.int().min(1),
  k: z.int().min(1),
  num_latents: z.int().min(0).nullish(),
  expansion_factor: z.int().min(1).nullish(),
  activation: z.string().nullish(),
  skip_connection: z.boolean().nullish(),
  transcode: z.boolean().nullish(),
});

/**
 * EleutherAI's sparsify: one folder per hook point (`layers.5`), topk, decoder bias subtracted before encoding.
 * Throws `SaeFileError`.
 */
export async function readSparsify(folder: SaeFolder, table: TensorTable): Promise<SaeParts> {
  const { file, document } = await folder.json(CONFIG_FILE, (found) => "d_in" in found && "k" in found);
  const read = fileSchema.safeParse(document);
  if (!read.success) {
    const issue = read.error.issues[0];
    throw new SaeFileError(
      file,
      `is not a sparsify configuration (${issue?.path.join(".") ?? ""}: ${issue?.message ?? ""})`,
    );
  }
  const cfg = read.data;
  const activation = cfg.activation ?? "topk";
  if (activation !== "topk") throw new SaeFileError(file, `has activation '${activation}'; only 'topk' can be used`);
  if (cfg.transcode === true || cfg.skip_connection === true) {
    throw new SaeFileError(file, "is a transcoder, which cannot be used");
  }
  table.refuseOthers(TENSORS, "a sparsify SAE");
  const d = cfg.d_in;
  // 0 stands for the expansion factor.
  const stated = cfg.num_latents ?? 0;
  const f = stated > 0 ? stated : d * (cfg.expansion_factor ?? 0);
  if (f === 0) throw new SaeFileError(file, "states neither num_latents nor expansion_factor");
  if (cfg.k > f) throw new SaeFileError(file, `has k ${cfg.k}, but only ${f} features`);
  const layer = layerOf(folder.path);
  return {
    config: {
      format: "sparsify",
      architecture: "topk",
      embeddingWidth: d,
      featureCount: f,
      hookPoint: layer === null ? null : residualPostHookPoint(layer),
      layer,
      modelName: null,
      contextTokens: null,
    },
    tensors: {
      embeddingWidth: d,
      featureCount: f,
      encoderColumns: table.featureRows("encoder.weight", d, f),
      encoderBias: table.vector("encoder.bias", f),
      decoderBias: table.vector("b_dec", d),
      applyDecoderBiasToInput: true,
      activation: "topk",
      threshold: new Float32Array(0),
      activeCount: cfg.k,
    },
    decoderRows: table.featureRows("W_dec", d, f),
    folds: [],
  };
}

/** The folder is called by its hook point; a copy under another name says nothing. */
function layerOf(path: string): number | null {
  const name = basename(path);
  const layer = /^(?:.*\.)?(?:layers|h)\.(\d+)$/.exec(name)?.[1];
  if (layer !== undefined) return Number(layer);
  if (/^(?:.*\.)?(?:layers|h)\.\d+\.|embed/.test(name)) {
    throw new SaeFileError(
      path,
      `belongs to the hook point '${name}'; only the residual stream after a block can be hooked`,
    );
  }
  return null;
}
