import type { Logger } from "../../shared/logging/logger.ts";
import type { Answer } from "../../shared/protocol/answer.ts";
import type { Clock } from "../../shared/time/clock.ts";
import { backOffWithJitterMs, reportTimes, STEADY_MS } from "./report-schedule.ts";

export interface ReporterDeps {
  readonly server: string;
  readonly heartbeatMs: number;
  readonly reconnectBaseMs: number;
  readonly reconnectMaxMs: number;
  readonly clock: Clock;
  readonly logger: Logger;
  /** From 0 up to, and not including, 1. */
  readonly random: () => number;
  /** Builds and delivers one report and uses its answer; rejects when it could not be delivered. */
  readonly deliver: () => Promise<{ readonly answer: Answer; readonly more: boolean }>;
}

/** Reports to one edge: at each heartbeat, soon after a change, and with growing delays while it is away. */
export class Reporter {
  readonly #deps: ReporterDeps;
  #timer: () => void = () => undefined;
  #dueAtMs = Number.POSITIVE_INFINITY;
  #lastSentAtMs = Number.NEGATIVE_INFINITY;
  #sending: Promise<void> | null = null;
  #changed = false;
  #failures = 0;
  /** Those by which the delay grows. */
  #growing = 0;
  #reached = false;
  #warned = false;
  #failingSinceMs: number | null = null;
  #everyMs: number;
  #stopped = false;

  constructor(deps: ReporterDeps) {
    this.#deps = deps;
    this.#everyMs = deps.heartbeatMs;
  }

  start(): void {
    this.#schedule(0);
  }

  /** Something of the report is different now. */
  changed(): void {
    this.#changed = true;
    if (this.#sending !== null || this.#failures > 0 || this.#stopped) return;
    const { gapMs } = reportTimes(this.#deps.heartbeatMs, this.#everyMs);
    this.#schedule(Math.max(0, this.#lastSentAtMs + gapMs - this.#deps.clock.monotonicMs()));
  }

  /** No more reports by itself; resolves when the one on its way is over. */
  async stop(): Promise<void> {
    this.#stopped = true;
    this.#timer();
    await this.#sending;
  }

  /** Keeps the earlier of the due time and the asked one. */
  #schedule(delayMs: number): void {
    if (this.#stopped) return;
    const atMs = this.#deps.clock.monotonicMs() + delayMs;
    if (atMs >= this.#dueAtMs) return;
    this.#timer();
    this.#dueAtMs = atMs;
    this.#timer = this.#deps.clock.after(delayMs, () => {
      this.#dueAtMs = Number.POSITIVE_INFINITY;
      this.#sending ??= this.#send();
    });
  }

  async #send(): Promise<void> {
    const { clock, logger, server } = this.#deps;
    this.#lastSentAtMs = clock.monotonicMs();
    this.#changed = false;
    let more = false;
    try {
      const delivered = await this.#deps.deliver();
      more = delivered.more;
      this.#everyMs = Math.max(this.#deps.heartbeatMs, delivered.answer.report_every_ms);
      if (this.#failures > 0) logger.info("edge reached again", { server });
      this.#failures = 0;
      this.#reached = true;
      this.#warned = false;
      this.#growing = 0;
      this.#failingSinceMs = null;
    } catch (error) {
      this.#failures++;
      const nowMs = clock.monotonicMs();
      this.#failingSinceMs ??= nowMs;
      if (!isRefusal(error) || nowMs - this.#failingSinceMs >= STEADY_MS) this.#growing++;
      const reason = error instanceof Error ? error.message : String(error);
      // Host and edge are often started together, and then the host is the sooner one.
      const early = !this.#reached && isRefusal(error) && nowMs - this.#failingSinceMs < STEADY_MS;
      if (early && this.#failures === 1) logger.info("waiting for the edge", { server });
      else if (!early && !this.#warned) {
        this.#warned = true;
        logger.warn("report not delivered", { server, reason });
      } else logger.debug("report not delivered", { server, reason, failures: this.#failures });
    }
    this.#sending = null;
    this.#scheduleNext(more);
  }

  #scheduleNext(more: boolean): void {
    const { clock, heartbeatMs, random, reconnectBaseMs, reconnectMaxMs } = this.#deps;
    if (this.#failures > 0) {
      this.#schedule(backOffWithJitterMs(this.#growing, reconnectBaseMs, reconnectMaxMs, random()));
      return;
    }
    const { gapMs, everyMs } = reportTimes(heartbeatMs, this.#everyMs);
    const wait = this.#changed || more ? gapMs : everyMs;
    this.#schedule(Math.max(0, this.#lastSentAtMs + wait - clock.monotonicMs()));
  }
}

/** Nobody listens there, and the machine says so at once. */
const isRefusal = (error: unknown): boolean =>
  error instanceof Error && "code" in error && error.code === "ECONNREFUSED";
