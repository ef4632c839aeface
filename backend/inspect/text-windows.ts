import type { NativeModel } from "../native/binding.ts";

/** Where an SAE does not say what it was trained on. */
const DEFAULT_WINDOW_TOKENS = 512;
/** More text moves the figures by less than texts differ. */
export const MAX_MEASURED_TOKENS = 4_096;

/**
 * A text as sequences of the length that the SAE was trained on: rows further on than that would be judged unfairly.
 * Each begins as the model wants a text to begin.
 */
export function textWindows(
  model: Pick<NativeModel, "info" | "tokenize">,
  text: string,
  trainedTokens: number | null,
): Int32Array[] {
  const { trainingContextLength, addsBos, bosToken } = model.info;
  const begin = addsBos && bosToken !== null ? [bosToken] : [];
  const length = Math.min(trainedTokens ?? DEFAULT_WINDOW_TOKENS, trainingContextLength - 1);
  const tokens = model.tokenize(text, false, true).subarray(0, MAX_MEASURED_TOKENS);
  const windows: Int32Array[] = [];
  for (let start = 0; start < tokens.length; start += length - begin.length) {
    windows.push(Int32Array.of(...begin, ...tokens.subarray(start, start + length - begin.length)));
  }
  return windows;
}
