export interface BoardRecord {
  readonly label: string;
  /** 1 running, 2 ended. */
  readonly state: number;
  readonly promptTokens: number;
  readonly keepTokens: number;
  readonly computedPrompt: number;
  readonly computedCompletion: number;
}

/** The bytes of an account board, as backend/native/src/account_board.cc lays them out. */
export function boardFile(records: readonly BoardRecord[], unrecorded = 0): Uint8Array {
  const bytes = new Uint8Array(128 * (1 + records.length));
  const view = new DataView(bytes.buffer);
  [0x42415453, 1, records.length, unrecorded].forEach((word, place) => view.setUint32(4 * place, word, true));
  records.forEach(({ label, state, promptTokens, keepTokens, computedPrompt, computedCompletion }, place) => {
    const at = 128 * (1 + place);
    const text = new TextEncoder().encode(label);
    const words = [state, promptTokens, keepTokens, computedPrompt, computedCompletion, text.length];
    words.forEach((word, number) => view.setUint32(at + 4 * number, word, true));
    bytes.set(text, at + 24);
  });
  return bytes;
}
