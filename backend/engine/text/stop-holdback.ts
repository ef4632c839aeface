/**
 * How many leading bytes can no longer be part of a stop string: up to where the earliest one begins, or could begin
 * if the next bytes complete it.
 */
export function releasableBytes(pending: Uint8Array, stops: readonly Uint8Array[]): number {
  for (let start = 0; start < pending.length; start += 1) {
    if (stops.some((stop) => mayBeginAt(pending, start, stop))) return start;
  }
  return pending.length;
}

function mayBeginAt(pending: Uint8Array, start: number, stop: Uint8Array): boolean {
  const length = Math.min(stop.length, pending.length - start);
  for (let i = 0; i < length; i += 1) if (pending[start + i] !== stop[i]) return false;
  return true;
}
