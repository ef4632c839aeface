import { mkdirSync, mkdtempSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { dirname, join } from "node:path";

export interface FixtureTensor {
  readonly dtype?: string;
  readonly shape: readonly number[];
  readonly values: readonly number[];
}

/** The bytes of a safetensors file; `header` may be changed to make it a broken one. */
export function safetensorsBytes(
  tensors: Readonly<Record<string, FixtureTensor>>,
  change: (header: Record<string, unknown>) => void = () => undefined,
): Buffer {
  const header: Record<string, unknown> = {};
  const parts: Buffer[] = [];
  let offset = 0;
  for (const [name, { dtype = "F32", shape, values }] of Object.entries(tensors)) {
    const bytes =
      dtype === "F32" ? Buffer.from(Float32Array.from(values).buffer) : Buffer.from(Uint16Array.from(values).buffer);
    header[name] = { dtype, shape, data_offsets: [offset, offset + bytes.length] };
    offset += bytes.length;
    parts.push(bytes);
  }
  change(header);
  const text = Buffer.from(JSON.stringify(header));
  const length = Buffer.alloc(8);
  length.writeBigUInt64LE(BigInt(text.length));
  return Buffer.concat([length, text, ...parts]);
}

/** d = 2, F = 3, JumpReLU: small enough to compute by hand. */
export const TINY_TENSORS: Readonly<Record<string, FixtureTensor>> = {
  W_enc: { shape: [2, 3], values: [1, 0, 2, 0, 1, -1] },
  W_dec: { shape: [3, 2], values: [1, 2, 3, 4, 5, 6] },
  b_enc: { shape: [3], values: [0, 0.5, 0] },
  b_dec: { shape: [2], values: [1, 1] },
  threshold: { shape: [3], values: [0.5, 0.5, 0.5] },
};

export const TINY_CONFIG = {
  architecture: "jumprelu",
  d_in: 2,
  d_sae: 3,
  dtype: "float32",
  apply_b_dec_to_input: true,
  normalize_activations: "none",
  hook_name: "blocks.1.hook_resid_post",
};

/** A folder in a new temporary place, with these files in it; `place` is where in there it lies. */
export function filesFolder(files: Readonly<Record<string, string | Uint8Array>>, place = "."): string {
  const folder = join(mkdtempSync(join(tmpdir(), "steerage-sae-")), place);
  for (const [name, content] of Object.entries(files)) {
    mkdirSync(dirname(join(folder, name)), { recursive: true });
    writeFileSync(join(folder, name), content);
  }
  return folder;
}

/** An SAE folder in SAELens layout in a new temporary place. */
export function saeFolder(config: unknown, weights: Uint8Array): string {
  return filesFolder({
    "cfg.json": typeof config === "string" ? config : JSON.stringify(config),
    "sae_weights.safetensors": weights,
  });
}
