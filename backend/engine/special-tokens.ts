import type { NativeModel } from "../native/binding.ts";

const known = new WeakMap<NativeModel, Int32Array>();

/** The model's control tokens, ascending: what `exclude_special_tokens` leaves alone. Looked up once per model. */
export function specialTokensOf(model: NativeModel): Int32Array {
  let tokens = known.get(model);
  if (tokens === undefined) {
    const { vocabularySize } = model.info;
    tokens = Int32Array.from(
      Array.from({ length: vocabularySize }, (_, token) => token).filter((token) => model.isControl(token)),
    );
    known.set(model, tokens);
  }
  return tokens;
}
