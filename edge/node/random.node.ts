import { randomFillSync } from "node:crypto";
import type { RandomBytes } from "../../shared/ids.ts";

/** Of unpredictable bytes, drawn at once: the system's generator costs more by the call than by the byte. */
const POOL_BYTES = 4_096;

/** Every byte is handed out once. */
export function pooledRandomBytes(): RandomBytes {
  let pool = new Uint8Array(0);
  return (length) => {
    if (length > POOL_BYTES) return randomFillSync(new Uint8Array(length));
    if (length > pool.length) pool = randomFillSync(new Uint8Array(POOL_BYTES));
    const bytes = pool.subarray(0, length);
    pool = pool.subarray(length);
    return bytes;
  };
}
