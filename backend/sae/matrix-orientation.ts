/** A matrix as it must lie for us: one feature a row of d values. */
export type FeatureRows =
  | { readonly kind: "rows"; readonly values: Float32Array }
  | { readonly kind: "ambiguous" }
  | { readonly kind: "mismatch" };

/**
 * Settles the orientation by shape against (d, F), not by the tensor's name: writers disagree about names. A square
 * matrix cannot be settled.
 */
export function asFeatureRows(
  values: Float32Array,
  shape: readonly number[],
  embeddingWidth: number,
  featureCount: number,
): FeatureRows {
  const [rows, columns] = shape;
  if (shape.length !== 2) return { kind: "mismatch" };
  if (embeddingWidth === featureCount && rows === columns && rows === featureCount) return { kind: "ambiguous" };
  if (rows === featureCount && columns === embeddingWidth) return { kind: "rows", values };
  if (rows !== embeddingWidth || columns !== featureCount) return { kind: "mismatch" };
  return { kind: "rows", values: transposed(values, rows, columns) };
}

/** Blocks keep both sides of the copy in the processor's cache: a 2,304 by 16,384 matrix is 150 MB. */
const BLOCK = 32;

function transposed(values: Float32Array, rows: number, columns: number): Float32Array {
  const result = new Float32Array(values.length);
  for (let rowBlock = 0; rowBlock < rows; rowBlock += BLOCK) {
    const rowEnd = Math.min(rowBlock + BLOCK, rows);
    for (let columnBlock = 0; columnBlock < columns; columnBlock += BLOCK) {
      const columnEnd = Math.min(columnBlock + BLOCK, columns);
      for (let row = rowBlock; row < rowEnd; row += 1) {
        for (let column = columnBlock; column < columnEnd; column += 1) {
          result[column * rows + row] = values[row * columns + column] ?? 0;
        }
      }
    }
  }
  return result;
}
