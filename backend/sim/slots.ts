/** Why no slot was given. */
export type NoSlot = "full" | "cancelled";

/** First come, first served, with a bounded queue. */
export class Slots {
  readonly #limit: number;
  readonly #maxWaiting: number;
  readonly #waiting: { grant: () => void }[] = [];
  #taken = 0;

  constructor(limit: number, maxWaiting: number) {
    this.#limit = limit;
    this.#maxWaiting = maxWaiting;
  }

  get taken(): number {
    return this.#taken;
  }

  get waiting(): number {
    return this.#waiting.length;
  }

  /** Resolves with the function that gives the slot back (once), or with why there is none. */
  async take(signal: AbortSignal): Promise<(() => void) | NoSlot> {
    if (signal.aborted) return "cancelled";
    if (this.#taken < this.#limit) {
      this.#taken++;
      return this.#release();
    }
    if (this.#waiting.length >= this.#maxWaiting) return "full";
    const granted = await new Promise<boolean>((resolve) => {
      const place = {
        grant: () => {
          signal.removeEventListener("abort", leave);
          resolve(true);
        },
      };
      const leave = (): void => {
        const at = this.#waiting.indexOf(place);
        if (at !== -1) this.#waiting.splice(at, 1);
        resolve(false);
      };
      signal.addEventListener("abort", leave, { once: true });
      this.#waiting.push(place);
    });
    return granted ? this.#release() : "cancelled";
  }

  #release(): () => void {
    let held = true;
    return () => {
      if (!held) return;
      held = false;
      const next = this.#waiting.shift();
      // The slot goes straight to the next in the queue, so nobody can come between.
      if (next === undefined) this.#taken--;
      else next.grant();
    };
  }
}
