import type { Clock } from "../../shared/time/clock.ts";
import type { QueueProspect } from "../ports/coordinator.ts";

export interface QueueProgressOptions {
  readonly clock: Clock;
  readonly everyMs: number;
  /** Null when the request does not wait any more. Rejections are taken for not knowing. */
  readonly prospect: () => Promise<QueueProspect | null>;
  readonly tell: (comment: string) => void;
}

/** Tells a client that waits where it stands, again and again until it is stopped. */
export class QueueProgress {
  readonly #options: QueueProgressOptions;
  #cancel: () => void = () => undefined;
  #stopped = false;

  constructor(options: QueueProgressOptions) {
    this.#options = options;
    this.#schedule();
  }

  stop(): void {
    this.#stopped = true;
    this.#cancel();
  }

  #schedule(): void {
    if (this.#stopped) return;
    this.#cancel = this.#options.clock.after(this.#options.everyMs, () => void this.#turn());
  }

  async #turn(): Promise<void> {
    const prospect = await this.#options.prospect().catch(() => null);
    if (this.#stopped) return;
    if (prospect !== null) this.#options.tell(commentOf(prospect));
    this.#schedule();
  }
}

/** Such as `queued place=3 estimate=12s`; without the estimate while nothing is known. */
export function commentOf({ place, waitMs }: QueueProspect): string {
  const estimate = waitMs === null ? "" : ` estimate=${Math.max(1, Math.ceil(waitMs / 1_000))}s`;
  return `queued place=${place}${estimate}`;
}
