/** What was opened, closed in the opposite order; a fault in one does not keep the others open. */
export class Closers {
  readonly #steps: (() => void | Promise<void>)[] = [];

  add(step: () => void | Promise<void>): void {
    this.#steps.push(step);
  }

  /** Once; rejects with AggregateError after everything was tried. */
  async close(): Promise<void> {
    const faults: unknown[] = [];
    for (let step = this.#steps.pop(); step !== undefined; step = this.#steps.pop()) {
      try {
        await step();
      } catch (thrown) {
        faults.push(thrown);
      }
    }
    if (faults.length > 0) throw new AggregateError(faults, "some parts did not close");
  }
}
