import { BandQueue, type IsBlocked, type AdmissionEntry, type WaitingEntry } from "./band-queue.ts";
import { DEFAULT_BAND, type BandSettings } from "./settings.ts";

/** The queues of one pool's bands, highest priority first. */
export class WaitingQueue {
  #bands: BandQueue[];
  readonly #byRequestId = new Map<string, WaitingEntry>();

  constructor(bands: readonly BandSettings[]) {
    this.#bands = bands.map((band) => new BandQueue(band)).toSorted(byPriority);
  }

  /** What waits in a band that is not there any more waits on under its old terms, behind nothing that it was before. */
  reconfigure(bands: readonly BandSettings[]): void {
    const kept = this.#bands.filter(
      ({ settings, size }) => size > 0 || bands.some(({ name }) => name === settings.name),
    );
    for (const band of bands) {
      const known = kept.find(({ settings }) => settings.name === band.name);
      if (known === undefined) kept.push(new BandQueue(band));
      else known.settings = band;
    }
    this.#bands = kept.toSorted(byPriority);
  }

  get size(): number {
    return this.#byRequestId.size;
  }

  get bands(): readonly BandQueue[] {
    return this.#bands;
  }

  /** A band that nobody configured has the defaults. */
  bandOf(name: string): BandQueue {
    const known = this.#bands.find(({ settings }) => settings.name === name);
    if (known !== undefined) return known;
    const made = new BandQueue({ ...DEFAULT_BAND, name });
    this.#bands = [...this.#bands, made].toSorted(byPriority);
    return made;
  }

  get(requestId: string): WaitingEntry | undefined {
    return this.#byRequestId.get(requestId);
  }

  add(entry: WaitingEntry, nowMs: number): void {
    this.bandOf(entry.request.band).add(entry, nowMs);
    this.#byRequestId.set(entry.request.requestId, entry);
  }

  remove(requestId: string): WaitingEntry | undefined {
    const entry = this.#byRequestId.get(requestId);
    if (entry === undefined) return undefined;
    this.#byRequestId.delete(requestId);
    this.bandOf(entry.request.band).remove(entry);
    return entry;
  }

  /**
   * Who gets the next place: the oldest of a band whose promise is due, the longest overdue first; else by priority,
   * each band while the pool is less full than its ceiling. The first band that is held back holds back those below.
   */
  next(isBlocked: IsBlocked, saturation: number, nowMs: number): WaitingEntry | null {
    if (this.size === 0) return null;
    let overdue: WaitingEntry | null = null;
    let overdueMs = -1;
    for (const band of this.#bands) {
      const lateMs = nowMs - band.trickleAtMs();
      if (!(lateMs > overdueMs)) continue;
      const oldest = band.oldest(isBlocked);
      if (oldest === null) continue;
      overdue = oldest;
      overdueMs = lateMs;
    }
    if (overdue !== null && overdueMs >= 0) return overdue;
    for (const band of this.#bands) {
      const entry = band.next(isBlocked, nowMs);
      if (entry === null) continue;
      return saturation < band.settings.saturationCeiling ? entry : null;
    }
    return null;
  }

  granted(entry: AdmissionEntry, charged: number, nowMs: number): void {
    for (const band of this.#bands) {
      if (band.settings.name === entry.request.band) band.granted(entry, charged, nowMs);
      else band.otherBandGranted();
    }
  }

  /** Place and expected wait of one that waits; the wait is null while nothing is known. */
  prospectOf(entry: WaitingEntry): { readonly place: number; readonly waitMs: number | null } {
    const own = this.bandOf(entry.request.band);
    const higher = this.#bands.filter(({ settings }) => settings.priority > own.settings.priority);
    const place = own.placeOf(entry);
    const { intervalMs } = own.drain;
    return {
      place: place + higher.reduce((sum, { size }) => sum + size, 0),
      waitMs: intervalMs === null ? null : intervalMs * place,
    };
  }
}

function byPriority(left: BandQueue, right: BandQueue): number {
  return right.settings.priority - left.settings.priority;
}
