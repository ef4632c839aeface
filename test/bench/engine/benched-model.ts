import { mkdirSync, writeFileSync } from "node:fs";
import path from "node:path";
import { safetensorsBytes } from "../../support/safetensors-fixture.ts";
import { ROOT } from "./root.ts";
import type { BenchModel } from "./flags.ts";
import { RANDOM_85M, randomModel85m } from "./random-model-85m.ts";

/** A model under measurement, with an SAE of 512 features in the middle of it. */
export interface BenchedModel {
  readonly name: BenchModel;
  readonly path: string;
  readonly saeFolder: string;
  readonly vocabularySize: number;
}

export const SAE_FEATURES = 512;
export const BENCH_FOLDER = path.join(ROOT, "build/bench");
const VOCABULARY_SIZE = 1_024;
const LAYER_OF_85M = 5;

export function benchedModel(name: BenchModel): BenchedModel {
  const demo = path.join(ROOT, "backend/demo");
  if (name === "demo") {
    return {
      name,
      path: path.join(demo, "demo-storyteller-1m.q8_0.gguf"),
      saeFolder: path.join(demo, "demo-l1"),
      vocabularySize: VOCABULARY_SIZE,
    };
  }
  return {
    name,
    path: randomModel85m(BENCH_FOLDER, path.join(demo, "recipe/vocab.json")),
    saeFolder: writeSae(path.join(BENCH_FOLDER, "random-85m-sae"), RANDOM_85M.width, LAYER_OF_85M),
    vocabularySize: VOCABULARY_SIZE,
  };
}

/** A ReLU SAE whose weights are waves: half of its features are active in a row of noise. */
function writeSae(folder: string, width: number, layer: number): string {
  mkdirSync(folder, { recursive: true });
  const wave = (length: number, step: number) => Array.from({ length }, (_, i) => Math.sin(i * step) * 0.1);
  const tensors = {
    W_enc: { shape: [width, SAE_FEATURES], values: wave(width * SAE_FEATURES, 1.7) },
    W_dec: { shape: [SAE_FEATURES, width], values: wave(width * SAE_FEATURES, 0.9) },
    b_enc: { shape: [SAE_FEATURES], values: wave(SAE_FEATURES, 1) },
    b_dec: { shape: [width], values: wave(width, 1) },
  };
  const config = {
    architecture: "standard",
    d_in: width,
    d_sae: SAE_FEATURES,
    dtype: "float32",
    apply_b_dec_to_input: true,
    normalize_activations: "none",
    hook_name: `blocks.${layer}.hook_resid_post`,
  };
  writeFileSync(path.join(folder, "cfg.json"), JSON.stringify(config));
  writeFileSync(path.join(folder, "sae_weights.safetensors"), safetensorsBytes(tensors));
  return folder;
}
