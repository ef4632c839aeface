import type { EngineEnded } from "../../ports/engine-events.ts";
import type { RequestLabel } from "../loop/generation-task.ts";

type Counts = Pick<EngineEnded, "computed_prompt" | "cached_prompt" | "computed_completion">;

/** The `ended` event of one request, told exactly once however the request ends. */
export class RequestAccount {
  readonly label: RequestLabel | null;
  readonly #publish: (event: EngineEnded) => void;
  #told = false;

  /** Without a label nothing is told. */
  constructor(label: RequestLabel | null, publish: (event: EngineEnded) => void) {
    this.label = label;
    this.#publish = publish;
  }

  /** Later calls have no effect: the first one had the true counts. */
  end(outcome: EngineEnded["outcome"], counts: Partial<Counts> = {}): void {
    if (this.#told) return;
    this.#told = true;
    if (this.label === null) return;
    this.#publish({
      type: "ended",
      request_id: this.label.requestId,
      attempt: this.label.attempt,
      computed_prompt: 0,
      cached_prompt: 0,
      computed_completion: 0,
      ...counts,
      outcome,
    });
  }
}
