import type { AdmitRequest } from "../ports/coordinator.ts";
import type { Requirement } from "../routing/candidate.ts";
import { DecayedWork, faded } from "./decayed-work.ts";
import { DrainRate } from "./drain-rate.ts";
import { ReturnPlaces } from "./return-places.ts";
import type { BandSettings } from "./settings.ts";

export interface AdmissionEntry {
  readonly request: AdmitRequest;
  /** Of the first arrival at an edge, on our monotonic clock. */
  readonly arrivedAtMs: number;
  readonly enqueuedAtMs: number;
  readonly requirement: Requirement;
}

export interface WaitingEntry extends AdmissionEntry {
  /** Entries with the same requirement find the same replicas; one look serves them all. */
  readonly requirementKey: string;
}

/**
 * Requests of one project that want the same of a machine and were promised the same, so that the first to come is
 * also the first that is due.
 */
export interface Lane {
  readonly project: string;
  readonly requirementKey: string;
  readonly entries: WaitingEntry[];
  /** Nothing is ready that could serve it; null before the first look. */
  noMachine: boolean | null;
  /** Since when that is so: each state has a clock of its own. */
  sinceMs: number;
}

/** A project with so many times the places of another is in its way. */
const HOG_FACTOR = 4;

export type IsBlocked = (requirementKey: string) => boolean;

/** The waiting requests of one band, with what fairness, promise and computed waits must remember of it. */
export class BandQueue {
  settings: BandSettings;
  readonly work = new DecayedWork();
  readonly drain = new DrainRate();
  readonly returns = new ReturnPlaces();
  readonly #lanes = new Map<string, Lane>();
  #size = 0;
  #bytes = 0;
  #level = 0;
  #lastGrantAtMs: number | null = null;
  #grantsOfOthers = 0;

  constructor(settings: BandSettings) {
    this.settings = settings;
  }

  get size(): number {
    return this.#size;
  }

  get bytes(): number {
    return this.#bytes;
  }

  /** A copy: lanes whose last request leaves are gone. */
  lanes(): readonly Lane[] {
    return [...this.#lanes.values()];
  }

  /** Places an entry behind all of its lane that arrived no later. */
  add(entry: WaitingEntry, nowMs: number): void {
    const { project, bodyBytes } = entry.request;
    const key = laneKey(entry);
    if (this.sizeOf(project) === 0) this.lift(project, nowMs);
    const lane = this.#lanes.get(key) ?? {
      project,
      requirementKey: entry.requirementKey,
      entries: [],
      noMachine: null,
      sinceMs: nowMs,
    };
    this.#lanes.set(key, lane);
    let place = lane.entries.length;
    while (place > 0 && (lane.entries[place - 1]?.arrivedAtMs ?? -Infinity) > entry.arrivedAtMs) place--;
    lane.entries.splice(place, 0, entry);
    this.#size++;
    this.#bytes += bodyBytes;
  }

  /** A project of which nothing waits comes back: it starts no further behind than those who are served now. */
  lift(project: string, nowMs: number): void {
    this.work.lift(project, this.#levelAt(nowMs), nowMs);
  }

  remove(entry: WaitingEntry): void {
    const key = laneKey(entry);
    const lane = this.#lanes.get(key);
    const place = lane?.entries.indexOf(entry) ?? -1;
    if (lane === undefined || place === -1) return;
    lane.entries.splice(place, 1);
    this.#size--;
    this.#bytes -= entry.request.bodyBytes;
    if (lane.entries.length === 0) this.#lanes.delete(key);
  }

  /**
   * Whose turn it is: the project that got least lately, and of that the request whose promised first token is due
   * first; those that were promised nothing come after, by their age.
   */
  next(isBlocked: IsBlocked, nowMs: number): WaitingEntry | null {
    let best: WaitingEntry | null = null;
    let least = Infinity;
    for (const { project, requirementKey, entries } of this.#lanes.values()) {
      const [head] = entries;
      if (head === undefined || isBlocked(requirementKey)) continue;
      const work = this.work.of(project, nowMs);
      if (best !== null && (work > least || (work === least && head.arrivedAtMs >= best.arrivedAtMs))) continue;
      best = head;
      least = work;
    }
    return best === null ? null : this.#mostUrgentOf(best, isBlocked);
  }

  /** Of the same project. */
  #mostUrgentOf(entry: WaitingEntry, isBlocked: IsBlocked): WaitingEntry {
    let best = entry;
    for (const { project, requirementKey, entries } of this.#lanes.values()) {
      const [head] = entries;
      if (head === undefined || project !== entry.request.project || isBlocked(requirementKey)) continue;
      const sooner = dueAtMs(head) - dueAtMs(best);
      if (sooner < 0 || (Number.isNaN(sooner) && head.arrivedAtMs < best.arrivedAtMs)) best = head;
    }
    return best;
  }

  oldest(isBlocked: IsBlocked = () => false): WaitingEntry | null {
    let oldest: WaitingEntry | null = null;
    for (const { requirementKey, entries } of this.#lanes.values()) {
      const [head] = entries;
      if (head === undefined || isBlocked(requirementKey)) continue;
      if (oldest === null || head.arrivedAtMs < oldest.arrivedAtMs) oldest = head;
    }
    return oldest;
  }

  /** How many of this band arrived before it, itself included. */
  placeOf(entry: WaitingEntry): number {
    let place = 1;
    for (const { entries } of this.#lanes.values()) {
      const own = entries.indexOf(entry);
      place += own === -1 ? entries.filter(({ arrivedAtMs }) => arrivedAtMs < entry.arrivedAtMs).length : own;
    }
    return place;
  }

  /** `charged`: the work that is expected of it. */
  granted(entry: AdmissionEntry, charged: number, nowMs: number): void {
    const { project } = entry.request;
    this.#level = this.work.of(project, nowMs);
    this.work.add(project, charged, nowMs);
    this.#lastGrantAtMs = nowMs;
    this.#grantsOfOthers = 0;
    if (entry.enqueuedAtMs < nowMs) this.drain.departed();
  }

  otherBandGranted(): void {
    this.#grantsOfOthers++;
  }

  /**
   * From when on the promise makes it this band's turn whatever else waits; Infinity while nobody waits. Its oldest
   * request has waited `maxWaitMs`, and enough grants went to others, or as much time again passed without any.
   */
  trickleAtMs(): number {
    const oldest = this.oldest();
    if (oldest === null) return Infinity;
    const { maxWaitMs, trickleShare } = this.settings;
    const overdueAtMs = oldest.arrivedAtMs + maxWaitMs;
    if (this.#lastGrantAtMs === null || this.#grantsOfOthers + 1 >= 1 / trickleShare) return overdueAtMs;
    return Math.max(overdueAtMs, this.#lastGrantAtMs + maxWaitMs);
  }

  /** Requests of a project that wait. */
  sizeOf(project: string): number {
    let size = 0;
    for (const lane of this.#lanes.values()) if (lane.project === project) size += lane.entries.length;
    return size;
  }

  /**
   * The newest request of the project that holds the most places, if it holds several times those of `project`: nobody
   * is kept out of a full queue by one who filled it.
   */
  dispensableFor(project: string): WaitingEntry | null {
    const sizes = new Map<string, number>();
    for (const lane of this.#lanes.values())
      sizes.set(lane.project, (sizes.get(lane.project) ?? 0) + lane.entries.length);
    const own = sizes.get(project) ?? 0;
    let most = HOG_FACTOR * (own + 1);
    let largest: string | null = null;
    for (const [name, size] of sizes) {
      if (size <= most) continue;
      most = size;
      largest = name;
    }
    let newest: WaitingEntry | null = null;
    for (const lane of this.#lanes.values()) {
      const last = lane.entries.at(-1);
      if (lane.project !== largest || last === undefined) continue;
      if (newest === null || last.arrivedAtMs > newest.arrivedAtMs) newest = last;
    }
    return newest;
  }

  /** What whoever was served last had got before, faded since. */
  #levelAt(nowMs: number): number {
    return this.#lastGrantAtMs === null ? 0 : faded(this.#level, nowMs - this.#lastGrantAtMs);
  }
}

function laneKey({ request, requirementKey }: WaitingEntry): string {
  return `${requirementKey}\n${request.sloTtftMs ?? ""}\n${request.project}`;
}

/** When its first token is due; Infinity where none was promised. */
function dueAtMs({ arrivedAtMs, request }: WaitingEntry): number {
  return arrivedAtMs + (request.sloTtftMs ?? Infinity);
}
