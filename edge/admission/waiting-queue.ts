import type { AdmitRequest } from "../ports/coordinator.ts";

export interface WaitingEntry {
  readonly request: AdmitRequest;
  readonly arrivedAtMs: number;
  /** Entries with the same requirement find the same replicas; one look serves them all. */
  readonly requirementKey: string;
  /** Since when nothing that could serve it is ready; null while something is. */
  noMachineSinceMs: number | null;
}

interface Band {
  readonly entries: WaitingEntry[];
  bytes: number;
}

/** Waiting requests of one pool, each band with its own array in order of first arrival. */
export class WaitingQueue {
  readonly #bands = new Map<string, Band>();
  readonly #byRequestId = new Map<string, WaitingEntry>();

  get size(): number {
    return this.#byRequestId.size;
  }

  sizeOf(band: string): number {
    return this.#bands.get(band)?.entries.length ?? 0;
  }

  bytesOf(band: string): number {
    return this.#bands.get(band)?.bytes ?? 0;
  }

  get(requestId: string): WaitingEntry | undefined {
    return this.#byRequestId.get(requestId);
  }

  /** Places an entry behind all that arrived no later. */
  add(entry: WaitingEntry): void {
    const { requestId, band: name, bodyBytes } = entry.request;
    const band = this.#bands.get(name) ?? { entries: [], bytes: 0 };
    this.#bands.set(name, band);
    let place = band.entries.length;
    while (place > 0 && (band.entries[place - 1]?.arrivedAtMs ?? -Infinity) > entry.arrivedAtMs) place--;
    band.entries.splice(place, 0, entry);
    band.bytes += bodyBytes;
    this.#byRequestId.set(requestId, entry);
  }

  remove(requestId: string): WaitingEntry | undefined {
    const entry = this.#byRequestId.get(requestId);
    if (entry === undefined) return undefined;
    this.#byRequestId.delete(requestId);
    const band = this.#bands.get(entry.request.band);
    const place = band?.entries.indexOf(entry) ?? -1;
    if (band !== undefined && place !== -1) {
      band.entries.splice(place, 1);
      band.bytes -= entry.request.bodyBytes;
      if (band.entries.length === 0) this.#bands.delete(entry.request.band);
    }
    return entry;
  }

  /** All entries, first come first, whatever their band. A copy: entries may be removed while it is walked. */
  inOrder(): readonly WaitingEntry[] {
    if (this.#bands.size === 1) for (const { entries } of this.#bands.values()) return [...entries];
    return [...this.#bands.values()]
      .flatMap(({ entries }) => entries)
      .toSorted((left, right) => left.arrivedAtMs - right.arrivedAtMs);
  }

  depthByBand(): Record<string, number> {
    return Object.fromEntries([...this.#bands].map(([name, { entries }]) => [name, entries.length]));
  }

  oldestWaitMsByBand(nowMs: number): Record<string, number> {
    return Object.fromEntries(
      [...this.#bands].map(([name, { entries }]) => [name, Math.max(0, nowMs - (entries[0]?.arrivedAtMs ?? nowMs))]),
    );
  }
}
