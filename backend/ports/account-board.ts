/**
 * The file in which an engine keeps, by request, what it has computed up to its last finished step. It is a shared
 * mapping that the kernel keeps when the process is killed, so a host can read exact accounts of a dead engine there.
 * Little endian; the writer is backend/native/src/account_board.cc.
 *
 *   header, 128 bytes: magic "STAB", version, records, unrecorded
 *   record, 128 bytes: state (0 free, 1 running, 2 ended), prompt tokens charged, tokens kept, prompt tokens computed,
 *                      completion tokens computed, bytes of the label, label
 */
export interface BoardAccount {
  readonly computed_prompt: number;
  readonly cached_prompt: number;
  readonly computed_completion: number;
  /** No job of it was running any more. */
  readonly ended: boolean;
}

export interface AccountBoard {
  /** Null when no job of it was ever started, as far as the board goes back. */
  accountOf(label: string): BoardAccount | null;
  /** Whether what is not on it did not happen. */
  readonly isComplete: boolean;
}

const MAGIC = 0x42415453;
const VERSION = 1;
const HEADER_BYTES = 128;
const RECORD_BYTES = 128;
const LABEL_AT = 24;
const FREE = 0;
const RUNNING = 1;

/** Beside the engine's socket. */
export const accountBoardPath = (socketPath: string): string => `${socketPath}.accounts`;

/** How a request is called on the board. */
export const accountLabel = (requestId: string, attempt: number): string => `${requestId}.${attempt}`;

/** Null for anything but a board of this version. */
export function readAccountBoard(bytes: Uint8Array): AccountBoard | null {
  const view = new DataView(bytes.buffer, bytes.byteOffset, bytes.byteLength);
  if (bytes.length < HEADER_BYTES || view.getUint32(0, true) !== MAGIC || view.getUint32(4, true) !== VERSION)
    return null;
  const records = view.getUint32(8, true);
  if (bytes.length < HEADER_BYTES + records * RECORD_BYTES) return null;
  const accounts = new Map<string, BoardAccount>();
  for (let place = 0; place < records; place++) {
    const at = HEADER_BYTES + place * RECORD_BYTES;
    const word = (number: number): number => view.getUint32(at + 4 * number, true);
    const state = word(0);
    if (state === FREE) continue;
    const [promptTokens, keepTokens, computedPrompt, computedCompletion] = [word(1), word(2), word(3), word(4)];
    const labelAt = at + LABEL_AT;
    const label = new TextDecoder().decode(bytes.subarray(labelAt, labelAt + word(5)));
    const before = accounts.get(label);
    const charged = promptTokens > 0;
    accounts.set(label, {
      computed_prompt: (before?.computed_prompt ?? 0) + (charged ? computedPrompt : 0),
      // Cells that were to be kept can be gone; they are then among the computed ones.
      cached_prompt: (before?.cached_prompt ?? 0) + (charged ? Math.min(keepTokens, promptTokens - computedPrompt) : 0),
      computed_completion: (before?.computed_completion ?? 0) + computedCompletion,
      ended: (before?.ended ?? true) && state !== RUNNING,
    });
  }
  return { accountOf: (label) => accounts.get(label) ?? null, isComplete: view.getUint32(12, true) === 0 };
}
