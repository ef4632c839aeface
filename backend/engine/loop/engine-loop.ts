import { ApiError } from "../../../shared/errors/api-error.ts";
import type { Clock } from "../../../shared/time/clock.ts";
import {
  STEP_RECORD_WORDS,
  type JobFinished,
  type NativeAccountBoard,
  type NativeContext,
  type StepEvents,
} from "../../native/binding.ts";
import { nativeErrorCode } from "../../native/load.ts";
import { accountLabel } from "../../ports/account-board.ts";
import { NO_CELLS, type CellLabels } from "../slots/cell-labels.ts";
import type { StartDecision } from "../slots/slot-plan.ts";
import type { StreamCosts } from "../slots/slot-plan.ts";
import { SlotTable } from "../slots/slot-table.ts";
import { WaitEstimate } from "../slots/wait-estimate.ts";
import {
  NOTHING_COMPUTED,
  type GenerationTask,
  type RequestLabel,
  type TaskAccount,
  type TaskSink,
} from "./generation-task.ts";
import { logprobsByJob } from "./step-logprobs.ts";

export interface EngineLoopOptions {
  readonly slots: number;
  readonly cellCount: number;
  /** Whether every sequence has cells of its own; null where they share them. */
  readonly streams: StreamCosts | null;
  /** Requests that may wait for a slot. */
  readonly maxPending: number;
  /** Whether cells can be dropped from some position on; a recurrent state cannot. */
  readonly reusesPrefixes: boolean;
  readonly clock: Clock;
  /** Keeps what requests have computed beyond this process; null for none. */
  readonly accounts: NativeAccountBoard | null;
  /** Something of `load` changed. */
  readonly onChange: () => void;
  readonly onTokens: (kind: "prompt" | "completion", count: number) => void;
}

/** What runs now, with what it has computed so far. */
export interface RunningTask {
  readonly label: RequestLabel | null;
  readonly cachedPromptTokens: number;
  readonly computedPromptTokens: number;
  readonly computedCompletionTokens: number;
}

export interface TaskTicket {
  /** Leaves the queue or the batch at once; `finished` still comes, once. Harmless afterwards. */
  cancel(): void;
}

interface Waiting {
  readonly task: GenerationTask;
  readonly sink: TaskSink;
  /** A further choice of a request that was taken: the queue's bound does not apply to it. */
  readonly further: boolean;
  /** Choices that start when this one has its prompt in the cache, from which they copy it. */
  readonly followers: Waiting[];
}
type Started = Extract<StartDecision, { kind: "start" }>;
interface Running extends Waiting {
  readonly sequenceId: number;
  readonly keepTokens: number;
  readonly startedAtMs: number;
  readonly sampled: number[];
  computedPrompt: number;
}

/** What `claim` says when there is no room, and a job that has no record. */
const NO_RECORD = -1;

/**
 * Owns the slots, the queue and the native context: carries out what the slot plan decides and hands every event of
 * a step to the request it belongs to.
 */
export class EngineLoop {
  readonly #options: EngineLoopOptions;
  readonly #table: SlotTable;
  readonly #estimate = new WaitEstimate();
  readonly #waiting: Waiting[] = [];
  readonly #tickets = new WeakMap<TaskTicket, Waiting>();
  readonly #running = new Map<number, Running>();
  #context: NativeContext | null = null;
  #lastJobId = 0;
  /** When the core last told of a step, or was given work after it had none. */
  #lastStepMs = 0;
  #idleListeners: (() => void)[] = [];

  constructor(options: EngineLoopOptions) {
    this.#options = options;
    this.#table = new SlotTable(options.slots, options.cellCount, options.streams);
  }

  /** The context reports to `onStep` and is made after this object, so it comes in here. */
  attach(context: NativeContext): void {
    this.#context = context;
  }

  /** Takes a task or throws `engine_busy`. Its bound must fit the cache. */
  submit(task: GenerationTask, sink: TaskSink): TaskTicket {
    const waiting: Waiting = { task, sink, further: false, followers: [] };
    this.#waiting.push(waiting);
    this.#startWaiting();
    if (this.waitingCount > this.#options.maxPending) {
      this.#waiting.splice(this.#waiting.indexOf(waiting), 1);
      throw new ApiError("engine_busy", {
        retryAfterSeconds: this.#estimate.seconds(this.#waiting.length + this.#running.size, this.#options.slots),
        source: "backend",
      });
    }
    this.#options.onChange();
    return this.#ticket(waiting);
  }

  /**
   * Takes a further choice of a request whose first one was taken. With a `leader` it has the same prompt and starts
   * when the leader's is computed, which is then copied instead of computed again.
   */
  submitFurther(task: GenerationTask, sink: TaskSink, leader: TaskTicket | null): TaskTicket {
    const waiting: Waiting = { task, sink, further: true, followers: [] };
    const followed = leader === null ? null : (this.#tickets.get(leader) ?? null);
    if (followed !== null && this.#isBeforePromptEnd(followed)) {
      followed.followers.push(waiting);
    } else {
      this.#waiting.push(waiting);
      this.#startWaiting();
    }
    this.#options.onChange();
    return this.#ticket(waiting);
  }

  #ticket(waiting: Waiting): TaskTicket {
    const ticket: TaskTicket = { cancel: () => this.#cancel(waiting) };
    this.#tickets.set(ticket, waiting);
    return ticket;
  }

  #isBeforePromptEnd(waiting: Waiting): boolean {
    if (this.#waiting.includes(waiting)) return true;
    for (const running of this.#running.values()) {
      if (running.sink === waiting.sink) return running.sampled.length === 0;
    }
    return false;
  }

  /** They come before the queue: their request has had its turn. */
  #releaseFollowers({ followers }: Waiting): void {
    if (followers.length > 0) this.#waiting.unshift(...followers.splice(0));
  }

  /** Requests start strictly in the order in which they came, so that a long one is not passed for ever. */
  #startWaiting(): void {
    for (let next = this.#waiting[0]; next !== undefined; next = this.#waiting[0]) {
      const { labels, maxTokens } = next.task;
      const reuseLimit = this.#options.reusesPrefixes ? next.task.reuseLimit : 0;
      const decision = this.#table.claim({ labels, reuseLimit, boundCells: labels.tokens.length + maxTokens });
      if (decision.kind === "wait") return;
      this.#waiting.shift();
      this.#start(next, decision);
    }
  }

  #start(waiting: Waiting, decision: Started): void {
    const { task, sink } = waiting;
    const context = this.#context;
    if (context === null) throw new Error("the loop has no context");
    const { sequenceId, copyFromSequenceId, keepTokens } = decision;
    const jobId = (this.#lastJobId += 1);
    const startedAtMs = this.#options.clock.monotonicMs();
    if (this.#running.size === 0) this.#lastStepMs = startedAtMs;
    this.#running.set(jobId, { ...waiting, sequenceId, keepTokens, startedAtMs, sampled: [], computedPrompt: 0 });
    sink.started(keepTokens);
    const accountRecord = this.#claimAccount(task, keepTokens);
    try {
      for (const id of decision.evict) context.clearSequence(id);
      const { tokens } = task.labels;
      const place = { jobId, sequenceId, copyFromSequenceId, keepTokens, accountRecord };
      context.submit({ ...task.job, ...place, tokens, maxTokens: task.maxTokens });
    } catch (thrown) {
      if (accountRecord !== NO_RECORD) this.#options.accounts?.release(accountRecord);
      const message = thrown instanceof Error ? thrown.message : String(thrown);
      this.#end(jobId, {
        ...NOTHING_COMPUTED,
        reason: "failed",
        failure: { code: nativeErrorCode(thrown) ?? "internal", message },
      });
    }
  }

  #claimAccount({ label, labels, countsPrompt }: GenerationTask, keepTokens: number): number {
    const { accounts } = this.#options;
    if (accounts === null || label === null) return NO_RECORD;
    const promptTokens = countsPrompt ? labels.tokens.length : 0;
    return accounts.claim(accountLabel(label.requestId, label.attempt), promptTokens, keepTokens);
  }

  #cancel(waiting: Waiting): void {
    const queue = [this.#waiting, ...this.#followerLists()].find((list) => list.includes(waiting));
    if (queue !== undefined) {
      queue.splice(queue.indexOf(waiting), 1);
      this.#releaseFollowers(waiting);
      waiting.sink.finished(NOTHING_COMPUTED);
      this.#startWaiting();
      this.#settle();
      return;
    }
    for (const [jobId, { sink }] of this.#running) if (sink === waiting.sink) this.#context?.cancel(jobId);
  }

  #followerLists(): Waiting[][] {
    return [...this.#waiting, ...this.#running.values()].map(({ followers }) => followers);
  }

  /** Everything that happened in one decode step; called by the native core on this thread. */
  onStep(events: StepEvents): void {
    this.#lastStepMs = this.#options.clock.monotonicMs();
    for (const { jobId, computedTokens } of events.prompts) {
      const running = this.#running.get(jobId);
      if (running === undefined) continue;
      this.#options.onTokens("prompt", Math.max(0, computedTokens - running.computedPrompt));
      running.computedPrompt = computedTokens;
    }
    for (const [jobId, chances] of logprobsByJob(events.promptLogprobs)) {
      this.#running.get(jobId)?.sink.promptChances(chances);
    }
    const logprobs = logprobsByJob(events.logprobs);
    const { records, text } = events;
    for (let at = 0; at + STEP_RECORD_WORDS <= records.length; at += STEP_RECORD_WORDS) {
      const jobId = records[at] ?? 0;
      const running = this.#running.get(jobId);
      if (running === undefined) continue;
      const token = records[at + 1] ?? 0;
      running.sampled.push(token);
      if (running.sampled.length === 1) this.#onPromptEnd(running);
      const bytes = text.subarray(records[at + 2], records[at + 3]);
      running.sink.token({ token, bytes, logprobs: logprobs.get(jobId)?.shift() ?? null });
    }
    if (records.length > 0) this.#options.onTokens("completion", records.length / STEP_RECORD_WORDS);
    for (const rows of events.sensed) this.#running.get(rows.jobId)?.sink.sensed(rows);
    for (const finished of events.finished) this.#finish(finished);
  }

  /** From now on its prompt can be copied. */
  #onPromptEnd(running: Running): void {
    this.#table.lend(running.sequenceId, running.task.labels);
    if (running.followers.length === 0) return;
    this.#releaseFollowers(running);
    this.#startWaiting();
  }

  #finish(finished: JobFinished): void {
    const running = this.#running.get(finished.jobId);
    if (running === undefined) return;
    const { errorCode, errorMessage } = finished;
    this.#end(finished.jobId, {
      reason: finished.reason,
      textEndBytes: finished.textEndBytes,
      cachedPromptTokens: reusedTokens(running, finished.computedPromptTokens),
      computedPromptTokens: finished.computedPromptTokens,
      computedCompletionTokens: finished.computedCompletionTokens,
      editedRows: finished.editedRows,
      failure:
        finished.reason === "failed" ? { code: errorCode ?? "internal", message: errorMessage ?? "no message" } : null,
    });
  }

  #end(jobId: number, account: TaskAccount): void {
    const running = this.#running.get(jobId);
    if (running === undefined) return;
    this.#running.delete(jobId);
    this.#estimate.record(this.#options.clock.monotonicMs() - running.startedAtMs);
    if (account.failure !== null) this.#context?.clearSequence(running.sequenceId);
    this.#table.release(running.sequenceId, heldCells(running, account));
    this.#releaseFollowers(running);
    running.sink.finished(account);
    this.#startWaiting();
    this.#settle();
  }

  #settle(): void {
    this.#options.onChange();
    if (this.#running.size > 0 || this.#waiting.length > 0) return;
    for (const listener of this.#idleListeners.splice(0)) listener();
  }

  /** Resolves when nothing runs and nothing waits. */
  whenIdle(): Promise<void> {
    if (this.#running.size === 0 && this.#waiting.length === 0) return Promise.resolve();
    return new Promise((resolve) => this.#idleListeners.push(resolve));
  }

  cancelAll(): void {
    for (const follower of this.#followerLists().flat()) this.#cancel(follower);
    for (let next = this.#waiting[0]; next !== undefined; next = this.#waiting[0]) this.#cancel(next);
    for (const jobId of this.#running.keys()) this.#context?.cancel(jobId);
  }

  /** Requests in the queue; further choices of one that was taken are none. */
  get waitingCount(): number {
    return this.#waiting.reduce((count, { further }) => count + (further ? 0 : 1), 0);
  }
  /** How long the core has owed a step, milliseconds; 0 while nothing runs. */
  get stalledMs(): number {
    return this.#running.size === 0 ? 0 : this.#options.clock.monotonicMs() - this.#lastStepMs;
  }
  get freeCells(): number {
    return this.#table.freeCells;
  }
  get cellCount(): number {
    return this.#table.cellCount;
  }
  running(): RunningTask[] {
    return [...this.#running.values()].map((running) => ({
      label: running.task.label,
      cachedPromptTokens: running.task.countsPrompt ? reusedTokens(running, running.computedPrompt) : 0,
      computedPromptTokens: running.task.countsPrompt ? running.computedPrompt : 0,
      computedCompletionTokens: running.sampled.length,
    }));
  }
}

/** Cells to keep can be gone: overwritten by a sliding window, or by a lender's end; the core then computes them again. */
function reusedTokens({ task, keepTokens }: Running, computedPromptTokens: number): number {
  return Math.min(keepTokens, task.labels.tokens.length - computedPromptTokens);
}

/**
 * Cells that surely hold what they should: the whole prompt once a token was sampled, and every sampled token but the
 * last, which never went through the model. After a failure nothing is trusted.
 */
function heldCells({ task, keepTokens, sampled }: Running, account: TaskAccount): CellLabels {
  if (account.failure !== null) return NO_CELLS;
  const { tokens } = task.labels;
  if (sampled.length === 0) {
    const computed = Math.min(tokens.length, keepTokens + account.computedPromptTokens);
    return { ...task.labels, tokens: tokens.slice(0, computed) };
  }
  const held = new Int32Array(tokens.length + sampled.length - 1);
  held.set(tokens);
  held.set(sampled.slice(0, -1), tokens.length);
  return { ...task.labels, tokens: held };
}
