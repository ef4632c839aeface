import type { PromptLogprobs, SensedRows } from "../../native/binding.ts";
import type { RequestLabel, SampledToken, TaskAccount, TaskSink } from "../loop/generation-task.ts";
import { crossingsIn, type Crossing, type WatchList } from "./watch-list.ts";

export interface WatchedRequestDeps {
  readonly label: RequestLabel | null;
  readonly nowMs: () => number;
  readonly maxEvents: number;
  /** Text of tokens; null where events carry none. */
  readonly textOf: ((tokens: readonly number[]) => string) | null;
}

/** What the watch lists see of one request, all its choices together. */
export class WatchedRequest {
  readonly #deps: WatchedRequestDeps;
  readonly #events = new Map<WatchList, number>();
  #begun = false;

  constructor(deps: WatchedRequestDeps) {
    this.#deps = deps;
  }

  get deps(): WatchedRequestDeps {
    return this.#deps;
  }

  /** One of its choices runs: it counts as a request, once. */
  begin(lists: readonly WatchList[]): void {
    if (this.#begun) return;
    this.#begun = true;
    for (const { windows } of lists) windows.addRequest(this.#deps.nowMs());
  }

  /** Whether one more event of this request may be told. */
  admits(list: WatchList): boolean {
    const told = this.#events.get(list) ?? 0;
    if (told >= this.#deps.maxEvents) {
      list.suppressed += 1;
      return false;
    }
    this.#events.set(list, told + 1);
    return true;
  }
}

export interface WatchedTask {
  readonly sink: TaskSink;
  readonly tokens: Int32Array;
  /** Sensing plans of the task that are the caller's; those of the lists follow. */
  readonly ownPlans: number;
  readonly lists: readonly WatchList[];
}

/** A crossing whose context is not whole yet. */
interface Pending {
  readonly list: WatchList;
  readonly crossing: Crossing;
  readonly atMs: number;
}

/** Stands before the sink of a task: takes the rows of watch lists out, and passes everything else on as it came. */
export class WatchingSink implements TaskSink {
  readonly #request: WatchedRequest;
  readonly #task: WatchedTask;
  /** Prompt and answer so far; empty where events carry no text. */
  readonly #tokens: number[];
  #pending: Pending[] = [];

  constructor(request: WatchedRequest, task: WatchedTask) {
    this.#request = request;
    this.#task = task;
    const needsTokens =
      request.deps.textOf !== null && task.lists.some(({ definition }) => definition.threshold !== null);
    this.#tokens = needsTokens ? [...task.tokens] : [];
  }

  started(cachedTokens: number): void {
    this.#request.begin(this.#task.lists);
    this.#task.sink.started(cachedTokens);
  }
  promptChances(chances: readonly PromptLogprobs[]): void {
    this.#task.sink.promptChances(chances);
  }
  token(sampled: SampledToken): void {
    this.#task.sink.token(sampled);
    if (this.#tokens.length === 0) return;
    this.#tokens.push(sampled.token);
    this.#tellWhole();
  }
  sensed(rows: SensedRows): void {
    const list = this.#task.lists[rows.planIndex - this.#task.ownPlans];
    if (list === undefined) {
      this.#task.sink.sensed(rows);
      return;
    }
    const atMs = this.#request.deps.nowMs();
    list.windows.addRows(rows, atMs);
    for (const crossing of crossingsIn(rows, list.definition.threshold)) {
      if (this.#request.admits(list)) this.#pending.push({ list, crossing, atMs });
    }
    this.#tellWhole();
  }
  finished(account: TaskAccount): void {
    this.#tell(this.#pending.splice(0));
    this.#task.sink.finished(account);
  }

  /** Those whose tokens to the right are all known, or that carry none. */
  #tellWhole(): void {
    if (this.#pending.length === 0) return;
    const isWhole = ({ list, crossing }: Pending): boolean =>
      this.#tokens.length === 0 || this.#tokens.length > crossing.position + list.definition.context_tokens;
    const whole = this.#pending.filter(isWhole);
    if (whole.length === 0) return;
    this.#pending = this.#pending.filter((one) => !isWhole(one));
    this.#tell(whole);
  }

  #tell(events: readonly Pending[]): void {
    const { label } = this.#request.deps;
    for (const { list, crossing, atMs } of events) {
      const context = this.#context(crossing.position, list.definition.context_tokens);
      list.tell(crossing, { label, promptTokens: this.#task.tokens.length, nowMs: atMs, context });
    }
  }

  #context(position: number, reach: number) {
    const { textOf } = this.#request.deps;
    if (textOf === null) return null;
    return {
      before: textOf(this.#tokens.slice(Math.max(0, position - reach), position)),
      token: textOf(this.#tokens.slice(position, position + 1)),
      after: textOf(this.#tokens.slice(position + 1, position + 1 + reach)),
    };
  }
}
