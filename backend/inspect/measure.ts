import type { Fidelity } from "../../shared/protocol/report.ts";
import type { NativeModel, NativeSae } from "../native/binding.ts";
import { FidelityMeter } from "../sae/fidelity.ts";
import type { SaeFiles } from "../sae/sae-files.ts";
import type { ResidualReader } from "./residual-reader.ts";

/** Rows encoded at a time: a large SAE must not hold the event loop for seconds. */
const ROWS_AT_ONCE = 16;

/** An SAE at a block of a model, and the reader of that block's rows. */
export interface MeasuredSae {
  readonly reader: Pick<ResidualReader, "rows">;
  readonly model: Pick<NativeModel, "info">;
  readonly files: SaeFiles;
  readonly native: NativeSae;
  readonly layer: number;
}

/** A row of the text and every activation of it. */
export interface EncodedRow {
  readonly position: number;
  readonly token: number;
  readonly activations: Float32Array;
}

/**
 * Runs the windows of a text through model and SAE. The row of a beginning-of-text token in front is left out of the figures:
 * in many models it is an outlier that no SAE explains, and `onRow` is told of it all the same.
 */
export async function measureFidelity(
  { reader, model, files, native, layer }: MeasuredSae,
  windows: readonly Int32Array[],
  onRow: (row: EncodedRow) => void = () => undefined,
): Promise<Fidelity | null> {
  const { embeddingWidth: width, featureCount } = files.config;
  const meter = new FidelityMeter(files.tensors, files.decoderRows);
  for (const tokens of windows) {
    const rows = await reader.rows(tokens, layer);
    for (let start = 0; start < rows.length; start += ROWS_AT_ONCE) {
      const some = rows.slice(start, start + ROWS_AT_ONCE);
      const joined = new Float32Array(some.length * width);
      some.forEach((row, place) => joined.set(row, place * width));
      const encoded = native.encode(joined);
      some.forEach((row, place) => {
        const position = start + place;
        const token = tokens[position] ?? 0;
        const activations = encoded.subarray(place * featureCount, (place + 1) * featureCount);
        if (position > 0 || token !== model.info.bosToken) meter.add(row, activations);
        onRow({ position, token, activations });
      });
      await new Promise<void>((resolve) => setImmediate(resolve));
    }
  }
  return meter.result();
}
