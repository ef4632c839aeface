import { residualPostHookPoint } from "../../shared/steering/hook-points.ts";
import { SaeFileError } from "./sae-file-error.ts";
import type { SaeParts } from "./sae-files.ts";
import type { SaeFolder } from "./sae-folder.ts";
import type { TensorTable } from "./tensor-table.ts";

const TENSORS = ["W_enc", "W_dec", "b_enc", "b_dec", "threshold"];

/**
 * Gemma Scope: a .npz of five arrays and nothing else, so that only the folders above it can say to which layer it
 * belongs (`layer_12/width_16k/average_l0_82`). JumpReLU, decoder bias not subtracted. Throws `SaeFileError`.
 */
export function readGemmaScope(folder: SaeFolder, table: TensorTable): SaeParts {
  refuseOtherHookPoints(folder.path);
  // Older files have w_enc and w_dec.
  const named = (name: string) => (table.has(name) ? name : name.replace("W_", "w_"));
  table.refuseOthers(TENSORS.map(named), "a Gemma Scope SAE");
  const d = table.lengthOf("b_dec");
  const f = table.lengthOf("b_enc");
  const layer = layerOf(folder.path);
  return {
    config: {
      format: "gemma_scope",
      architecture: "jumprelu",
      embeddingWidth: d,
      featureCount: f,
      hookPoint: layer === null ? null : residualPostHookPoint(layer),
      layer,
      modelName: null,
      contextTokens: null,
    },
    decoderRows: table.featureRows(named("W_dec"), d, f),
    tensors: {
      embeddingWidth: d,
      featureCount: f,
      encoderColumns: table.featureRows(named("W_enc"), d, f),
      encoderBias: table.vector("b_enc", f),
      decoderBias: table.vector("b_dec", d),
      applyDecoderBiasToInput: false,
      activation: "jumprelu",
      threshold: table.vector("threshold", f),
    },
    folds: [],
  };
}

/** The release's own folder names; a copy under other names says nothing. */
function layerOf(path: string): number | null {
  const found = [...path.matchAll(/(?:^|[\\/])layer_(\d+)(?=[\\/]|$)/g)].at(-1)?.[1];
  return found === undefined ? null : Number(found);
}

function refuseOtherHookPoints(path: string): void {
  const other = /gemma-scope-[^\\/]*-(mlp|att|transcoders)(?=[\\/]|$)/.exec(path)?.[1];
  const embedding = /(?:^|[\\/])embedding(?=[\\/]|$)/.test(path) ? "embedding" : undefined;
  const point = other ?? embedding;
  if (point === undefined) return;
  throw new SaeFileError(
    path,
    `belongs to the hook point '${point}'; only the residual stream after a block can be hooked`,
  );
}
