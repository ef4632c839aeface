import { ApiError } from "../../../shared/errors/api-error.ts";
import type { AnswerKey, AnswerStore, ClaimDecision, KeptAnswer } from "../../ports/answer-store.ts";
import type { IdempotentDispatchDeps } from "./idempotent-dispatch.ts";
import { SharedAnswer } from "./shared-answer.ts";

export interface IdempotencySettings {
  /** How long a first answer is given again; 0 switches all of it off. */
  readonly keepMs: number;
  readonly maxAnswerBytes: number;
  readonly maxProjectBytes: number;
  readonly maxKeysPerProject: number;
  /** How long an answer goes on being made after its client left. */
  readonly lingerMs: number;
  /** Longest wait for an answer that somebody else is making. */
  readonly waitMs: number;
}

export interface RunningAnswer {
  readonly key: AnswerKey;
  readonly fingerprint: string;
  readonly answer: SharedAnswer;
  /** Resolves when this process has nothing more to say about the key. */
  readonly over: Promise<void>;
  readonly end: () => void;
}

const nothing = (): void => undefined;

/** A claim that its process does not renew is over: the process died. */
const LEASE_MS = 15_000;
const RENEW_MS = 5_000;
/** What is recorded in memory at a time, over all projects; more answers at once are not kept. */
const MAX_RECORDED_BYTES = 64 * 2 ** 20;

type KeeperDeps = Pick<IdempotentDispatchDeps, "clock" | "logger" | "store" | "holder" | "settings" | "draining">;

/**
 * The answers that this process is making or could not hand to the database yet. While there are any, their claims are
 * renewed, and what could not be written is tried again.
 */
export class AnswerKeeper {
  readonly #deps: KeeperDeps;
  readonly #running = new Map<string, RunningAnswer>();
  readonly #unwritten = new Map<RunningAnswer, () => Promise<void>>();
  #cancelTimer: (() => void) | null = null;
  #closed = false;

  constructor(deps: KeeperDeps) {
    this.#deps = deps;
  }

  running(key: AnswerKey): RunningAnswer | null {
    return this.#running.get(idOf(key)) ?? null;
  }

  begin(key: AnswerKey, fingerprint: string): RunningAnswer {
    const { clock, settings, draining } = this.#deps;
    const { maxAnswerBytes, lingerMs: allowedMs } = settings();
    const maxBytes = Math.min(maxAnswerBytes, MAX_RECORDED_BYTES / (this.#running.size + 1));
    const lingerMs = (): number => (draining() ? 0 : allowedMs);
    let end = nothing;
    const over = new Promise<void>((resolve) => (end = resolve));
    const running = { key, fingerprint, answer: new SharedAnswer({ clock, maxBytes, lingerMs }), over, end };
    this.#running.set(idOf(key), running);
    return running;
  }

  /** Whatever it is but `claimed`, this process is not the one that answers. Rejects with idempotency_unavailable. */
  async claim(running: RunningAnswer, requestId: string): Promise<ClaimDecision> {
    const { store, holder, settings } = this.#deps;
    const { key, fingerprint } = running;
    try {
      const claim = { ...key, fingerprint, holder, requestId, leaseMs: LEASE_MS };
      const decision = await store.claimAnswer(claim, { maxKeys: settings().maxKeysPerProject });
      if (decision.kind === "claimed") this.#schedule();
      else this.#withdraw(running);
      return decision;
    } catch (thrown) {
      this.#withdraw(running);
      this.#deps.logger.warn("an Idempotency-Key could not be looked up", {
        request_id: requestId,
        reason: String(thrown),
      });
      throw new ApiError("idempotency_unavailable", { retryAfterSeconds: 5, cause: thrown });
    }
  }

  /** Keeps a whole answer, and lets go of anything else. Never rejects. */
  async ended(running: RunningAnswer, requestId: string): Promise<void> {
    const { store, holder, settings } = this.#deps;
    const { recorded } = running.answer;
    const own = { ...running.key, holder };
    const answer = recorded === null ? null : keptAnswer(requestId, recorded);
    const { maxProjectBytes: maxBytes, keepMs } = settings();
    const term = { maxBytes, keepMs };
    const write = answer === null ? () => store.dropClaim(own) : () => store.keepAnswer(own, answer, term);
    if (answer === null) this.#forget(running);
    await this.#write(running, write);
  }

  close(): void {
    this.#closed = true;
    this.#cancelTimer?.();
    this.#cancelTimer = null;
  }

  async #write(running: RunningAnswer, write: () => Promise<void>): Promise<void> {
    try {
      await write();
      this.#unwritten.delete(running);
      this.#forget(running);
    } catch (thrown) {
      if (!this.#unwritten.has(running))
        this.#deps.logger.warn("a first answer could not be handed to the database yet", { reason: String(thrown) });
      this.#unwritten.set(running, write);
    }
  }

  #forget(running: RunningAnswer): void {
    const id = idOf(running.key);
    if (this.#running.get(id) === running) this.#running.delete(id);
    running.end();
  }

  #withdraw(running: RunningAnswer): void {
    this.#forget(running);
    running.answer.withdraw();
  }

  #schedule(): void {
    if (this.#closed || this.#cancelTimer !== null) return;
    this.#cancelTimer = this.#deps.clock.after(RENEW_MS, () => void this.#renew());
  }

  async #renew(): Promise<void> {
    const { store, holder, logger } = this.#deps;
    try {
      if (this.#running.size > 0) await store.renewClaims(holder, LEASE_MS);
      for (const [running, write] of this.#unwritten) await this.#write(running, write);
    } catch (thrown) {
      logger.warn("claims of Idempotency-Keys could not be renewed", { reason: String(thrown) });
    }
    this.#cancelTimer = null;
    if (this.#running.size + this.#unwritten.size > 0) this.#schedule();
  }
}

/** Rate limits are of the moment; everything else is told again as it was. */
function keptAnswer(requestId: string, recorded: NonNullable<SharedAnswer["recorded"]>): KeptAnswer {
  const headers = Object.fromEntries(
    Object.entries(recorded.headers).filter(([name]) => !name.toLowerCase().startsWith("x-ratelimit-")),
  );
  return { requestId, status: recorded.status, headers, body: textOf(recorded.body) };
}

/** What is not UTF-8 could not be given again byte for byte. */
function textOf(body: Uint8Array | null): string | null {
  if (body === null) return null;
  try {
    return new TextDecoder("utf-8", { fatal: true, ignoreBOM: true }).decode(body);
  } catch {
    return null;
  }
}

const idOf = ({ project, keySha256 }: AnswerKey): string => `${project} ${keySha256}`;

/** Deletes what is over, again and again until the returned function is called. */
export function forgetAnswersEvery(
  { store, clock, logger }: { store: Pick<AnswerStore, "forgetAnswers"> } & Pick<KeeperDeps, "clock" | "logger">,
  everyMs: number,
): () => void {
  const state: { stopped: boolean; cancel: () => void } = { stopped: false, cancel: () => undefined };
  const turn = async (): Promise<void> => {
    await store
      .forgetAnswers()
      .catch((thrown: unknown) => logger.warn("old first answers could not be deleted", { reason: String(thrown) }));
    if (!state.stopped) state.cancel = clock.after(everyMs, () => void turn());
  };
  void turn();
  return () => {
    state.stopped = true;
    state.cancel();
  };
}
