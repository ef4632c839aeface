import { createHash } from "node:crypto";
import type { StoredTensor } from "./safetensors-file.ts";
import type { SaeParts } from "./sae-files.ts";

/**
 * SHA-256 over the tensors in order of their names (name, number format, shape, bytes) and the rules by which they are
 * used. Two SAEs with the same digest steer and sense alike whatever they are called; the order inside the file and its
 * comments do not matter.
 */
export function contentDigest(tensors: ReadonlyMap<string, StoredTensor>, { tensors: used, folds }: SaeParts): string {
  const hash = createHash("sha256");
  const { activation, normalization = "none", applyDecoderBiasToInput, activeCount = null } = used;
  hash.update(`${JSON.stringify({ activation, normalization, applyDecoderBiasToInput, activeCount, folds })}\n`);
  for (const { name, dtype, shape, bytes } of [...tensors.values()].toSorted((a, b) => (a.name < b.name ? -1 : 1))) {
    hash.update(`${JSON.stringify([name, dtype, shape])}\n`).update(bytes);
  }
  return hash.digest("hex");
}
