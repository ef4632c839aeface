import type { EndedRequest } from "../../shared/protocol/report.ts";
import type { Clock } from "../../shared/time/clock.ts";
import { type AccountBoard, accountLabel } from "../ports/account-board.ts";
import type { EngineEnded, EngineLoad } from "../ports/engine-events.ts";

/** How the exchange with the engine came to its end, seen from the host. */
export type ExchangeEnd =
  /** The whole answer was passed on. */
  | "completed"
  /** The engine answered with an error status. */
  | "refused"
  /** The edge closed the connection. */
  | "cancelled"
  /** No connection to the engine: it never saw the request. */
  | "unreached"
  /** The engine ended before it said a word of the request, to its caller or in its reports. */
  | "unheard"
  /** The connection to the engine ended inside the exchange. */
  | "broke";

interface Counts {
  readonly computed_prompt: number;
  readonly cached_prompt: number;
  readonly computed_completion: number;
}
const NOTHING: Counts = { computed_prompt: 0, cached_prompt: 0, computed_completion: 0 };

export interface RequestNames {
  readonly edge: string;
  readonly requestId: string;
  readonly attempt: number;
}

/** One request of one engine process, from its admission here to its single ended entry. */
export interface RunningRequest {
  /** Stream events that passed by, for the case that the engine dies. */
  sawEvents(count: number): void;
  /** The engine works on it, or did before it died: by what it told, or by what it left behind. */
  wasHeard(): boolean;
  /** What the engine left behind proves that nothing was computed. */
  isUntouched(): boolean;
  /** The exchange is over. May be called again; only the first end counts. */
  close(end: ExchangeEnd): void;
}

interface Entry extends RequestNames {
  readonly instance: number;
  readonly startedAtMs: number;
  counted: Counts;
  events: number;
  heard: boolean;
  end: ExchangeEnd | null;
  cancelGrace: () => void;
}

export interface RunningRequestsDeps {
  readonly replica: string;
  readonly epoch: number;
  readonly clock: Clock;
  readonly record: (entry: EndedRequest) => void;
  readonly onChange: () => void;
  /** The accounts that this engine process keeps outside itself; null where it keeps none. Read again at every call. */
  readonly readBoard: (instance: number) => AccountBoard | null;
}

/** How long an engine may take to give its account of a request whose exchange is over. */
const ACCOUNT_GRACE_MS = 5_000;
/** Durations kept for the estimate of a wait. */
const DURATION_WINDOW = 50;
const UNKNOWN_WAIT_SECONDS = 5;
const LONGEST_WAIT_SECONDS = 60;

/**
 * Owner of a replica's requests in flight. Each that an engine may have worked on leaves exactly one ended entry: the
 * engine's own account; what its board says where it died before it gave one; and where it keeps no board, what the host
 * counted.
 */
export class RunningRequests {
  readonly #deps: RunningRequestsDeps;
  readonly #entries = new Map<string, Entry>();
  #listed = new Set<string>();
  #lastEnded = 0;
  #lastBoard: AccountBoard | null = null;
  #durationsMs: number[] = [];

  constructor(deps: RunningRequestsDeps) {
    this.#deps = deps;
  }

  has(requestId: string, attempt: number): boolean {
    return this.#entries.has(accountLabel(requestId, attempt));
  }

  /** Every request whose ended entry is still to come. */
  get size(): number {
    return this.#entries.size;
  }

  /** Requests whose exchange is open. */
  get open(): number {
    let count = 0;
    for (const { end } of this.#entries.values()) if (end === null) count++;
    return count;
  }

  /** Requests that still cost the engine something: the exchange is open, or the engine says that it works on it. */
  byEdge(): Record<string, number> {
    const counts: Record<string, number> = {};
    for (const [key, { edge, end }] of this.#entries)
      if (end === null || this.#listed.has(key)) counts[edge] = (counts[edge] ?? 0) + 1;
    return counts;
  }

  begin(names: RequestNames, instance: number): RunningRequest {
    const key = accountLabel(names.requestId, names.attempt);
    const entry: Entry = {
      ...names,
      instance,
      startedAtMs: this.#deps.clock.monotonicMs(),
      counted: NOTHING,
      events: 0,
      heard: false,
      end: null,
      cancelGrace: () => undefined,
    };
    this.#entries.set(key, entry);
    this.#deps.onChange();
    return {
      sawEvents: (count) => {
        entry.events += count;
      },
      wasHeard: () => entry.heard || this.#begunOnBoard(key, entry),
      isUntouched: () => !entry.heard && this.#boardOf(entry)?.isComplete === true && !this.#begunOnBoard(key, entry),
      close: (end) => this.#close(key, entry, end),
    };
  }

  /**
   * A request that its edge gave up while no engine had begun it. `counted` where an engine that is gone may have
   * computed something before it said so.
   */
  neverBegan(names: RequestNames, exactness: EndedRequest["exactness"]): void {
    this.#record(names, NOTHING, { outcome: "cancelled", exactness });
  }

  onLoad(load: EngineLoad): void {
    this.#listed = new Set();
    for (const running of load.running) {
      const key = accountLabel(running.request_id, running.attempt);
      this.#listed.add(key);
      const entry = this.#entries.get(key);
      if (entry === undefined) continue;
      entry.heard = true;
      entry.counted = most(entry.counted, running);
    }
  }

  onEnded(event: EngineEnded): void {
    const key = accountLabel(event.request_id, event.attempt);
    const entry = this.#entries.get(key);
    if (entry !== undefined) this.#settle(key, entry, event, { outcome: event.outcome, exactness: "exact" });
  }

  /** The process is gone, and with it every account it still owed. */
  onInstanceEnd(instance: number): void {
    this.#lastEnded = instance;
    this.#lastBoard = this.#deps.readBoard(instance);
    for (const [key, entry] of this.#entries) {
      if (entry.instance !== instance) continue;
      // Perhaps it never began: how its exchange ends will tell, which is about to.
      if (entry.end === null && !entry.heard) continue;
      const outcome = entry.end === "cancelled" ? "cancelled" : "failed";
      this.#settleByBoard(key, entry, outcome);
    }
    this.#listed = new Set();
  }

  /** Whole seconds until a slot is likely free for one more, from how long requests took lately. */
  waitSeconds(slots: number): number {
    if (this.#durationsMs.length === 0) return UNKNOWN_WAIT_SECONDS;
    const meanMs = this.#durationsMs.reduce((sum, ms) => sum + ms, 0) / this.#durationsMs.length;
    const ahead = Math.max(1, this.open - slots + 1);
    return Math.min(LONGEST_WAIT_SECONDS, Math.max(1, Math.ceil((meanMs * ahead) / slots / 1_000)));
  }

  #close(key: string, entry: Entry, end: ExchangeEnd): void {
    if (entry.end !== null) return;
    entry.end = end;
    this.#deps.onChange();
    if (this.#entries.get(key) !== entry) return;
    // Nobody worked on it, and it may be begun again for another engine: there is nothing to tell.
    if (end === "unreached" || end === "unheard") this.#entries.delete(key);
    else this.#awaitAccount(key, entry);
  }

  #awaitAccount(key: string, entry: Entry): void {
    if (entry.instance <= this.#lastEnded) {
      this.#settleByBoard(key, entry, outcomeOf(entry.end));
      return;
    }
    entry.cancelGrace = this.#deps.clock.after(ACCOUNT_GRACE_MS, () => {
      if (this.#listed.has(key)) {
        this.#awaitAccount(key, entry);
        return;
      }
      // A refusal computes nothing, so its zeros are exact even without a word from the engine.
      if (entry.end === "refused") this.#settle(key, entry, NOTHING, { outcome: "failed", exactness: "exact" });
      // An engine without a board lives and never spoke of it: the connection was closed before it read the request.
      else if (this.#boardOf(entry) === null && entry.end === "cancelled" && !entry.heard && entry.events === 0)
        this.#settle(key, entry, NOTHING, { outcome: "cancelled", exactness: "exact" });
      else this.#settleByBoard(key, entry, outcomeOf(entry.end));
    });
  }

  #settleByBoard(key: string, entry: Entry, outcome: EndedRequest["outcome"]): void {
    const { counts, exactness } = this.#accountOf(key, entry);
    this.#settle(key, entry, counts, { outcome, exactness });
  }

  #accountOf(key: string, entry: Entry): { readonly counts: Counts; readonly exactness: EndedRequest["exactness"] } {
    const board = this.#boardOf(entry);
    const account = board?.accountOf(key) ?? null;
    // Of a living engine only an account that is closed is its last word.
    const isFinal = entry.instance <= this.#lastEnded || account?.ended === true;
    if (board !== null && account !== null && isFinal) return { counts: account, exactness: "exact" };
    if (board?.isComplete === true && account === null) return { counts: NOTHING, exactness: "exact" };
    const counted = countedOf(entry);
    return { counts: account === null ? counted : most(account, counted), exactness: "counted" };
  }

  #begunOnBoard(key: string, entry: Entry): boolean {
    const account = this.#boardOf(entry)?.accountOf(key) ?? null;
    return account !== null && account.computed_prompt + account.computed_completion > 0;
  }

  #boardOf({ instance }: Entry): AccountBoard | null {
    return instance === this.#lastEnded ? this.#lastBoard : this.#deps.readBoard(instance);
  }

  #settle(key: string, entry: Entry, counts: Counts, how: Pick<EndedRequest, "outcome" | "exactness">): void {
    entry.cancelGrace();
    this.#entries.delete(key);
    this.#durationsMs.push(this.#deps.clock.monotonicMs() - entry.startedAtMs);
    if (this.#durationsMs.length > DURATION_WINDOW) this.#durationsMs.shift();
    this.#record(entry, counts, how);
    this.#deps.onChange();
  }

  #record(names: RequestNames, counts: Counts, how: Pick<EndedRequest, "outcome" | "exactness">): void {
    const { clock, epoch, replica } = this.#deps;
    this.#deps.record({
      request_id: names.requestId,
      attempt: names.attempt,
      edge: names.edge,
      replica,
      epoch,
      ended_at: clock.nowMs(),
      computed_prompt: counts.computed_prompt,
      cached_prompt: counts.cached_prompt,
      computed_completion: counts.computed_completion,
      ...how,
    });
  }
}

/** The engine's last word and what passed by, whichever is more. One event of a stream carries no token of its own. */
function countedOf(entry: Entry): Counts {
  return { ...entry.counted, computed_completion: Math.max(entry.counted.computed_completion, entry.events - 1) };
}

function most(a: Counts, b: Counts): Counts {
  return {
    computed_prompt: Math.max(a.computed_prompt, b.computed_prompt),
    cached_prompt: Math.max(a.cached_prompt, b.cached_prompt),
    computed_completion: Math.max(a.computed_completion, b.computed_completion),
  };
}

function outcomeOf(end: ExchangeEnd | null): EndedRequest["outcome"] {
  if (end === "completed" || end === "cancelled") return end;
  return "failed";
}
