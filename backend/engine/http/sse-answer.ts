import type { ServerResponse } from "node:http";
import type { ApiError } from "../../../shared/errors/api-error.ts";
import { SSE_DONE, SSE_HEADERS, sseData } from "../../../shared/sse/writer.ts";
import type { Activations } from "../../sae/activation-rows.ts";
import type { AnswerHead, AnswerNames } from "../openai/answer-form.ts";

/** A choice as the stream needs it; see AnswerChoice. */
export interface StreamedChoice {
  takeDelta(): object | null;
  takeActivations(): Activations | null;
  takeEnd(): readonly object[];
}

/**
 * One answer as an event stream. Parts that come faster than they can be written are joined: while the client does not
 * read, the buffer holds no more than the answer's text.
 */
export class SseAnswer {
  readonly #response: ServerResponse;
  /** Those that still grow. */
  readonly #open: Set<StreamedChoice>;
  /** What every chunk repeats, up to its choices. */
  readonly #prefix: string;
  #scheduled = false;
  #ended = false;

  constructor(response: ServerResponse, head: AnswerHead, names: AnswerNames, choices: Iterable<StreamedChoice>) {
    this.#response = response;
    this.#open = new Set(choices);
    const { id, created, model } = head;
    this.#prefix = `${JSON.stringify({ id, object: names.chunkObject, created, model }).slice(0, -1)},"choices":`;
  }

  open(headers: Record<string, string>): void {
    if (this.#response.headersSent || this.#response.destroyed) return;
    this.#response.writeHead(200, { ...SSE_HEADERS, ...headers });
    this.#response.flushHeaders();
  }

  /** Writes what is ready once the events at hand have all been taken in. */
  schedule(): void {
    if (this.#scheduled || this.#ended) return;
    this.#scheduled = true;
    if (this.#response.writableNeedDrain) this.#response.once("drain", () => this.#flush());
    else setImmediate(() => this.#flush());
  }

  #flush(): void {
    this.#scheduled = false;
    if (this.#ended || this.#response.destroyed) return;
    let frames = this.#readyFrames();
    for (const choice of this.#open) {
      const activations = choice.takeActivations();
      if (activations !== null) frames += this.#frame([], `,"steerage":${JSON.stringify({ activations })}`);
    }
    if (frames !== "") this.#response.write(frames);
  }

  #readyFrames(): string {
    let frames = "";
    for (const choice of this.#open) {
      const delta = choice.takeDelta();
      if (delta !== null) frames += this.#frame([delta]);
    }
    return frames;
  }

  /** The rest of one choice and its finish, while others may go on. */
  endChoice(choice: StreamedChoice): void {
    this.#open.delete(choice);
    if (this.#response.destroyed) return;
    this.#response.write(this.#endFrames(choice));
  }

  #endFrames(choice: StreamedChoice): string {
    return choice
      .takeEnd()
      .map((delta) => this.#frame([delta]))
      .join("");
  }

  /** After the last choice: steerage, usage, [DONE]. */
  end(steerage: object | null, usage: object | null): void {
    this.#ended = true;
    if (this.#response.destroyed) return;
    let frames = "";
    if (steerage !== null) frames += this.#frame([], `,"steerage":${JSON.stringify(steerage)}`);
    if (usage !== null) frames += this.#frame([], `,"usage":${JSON.stringify(usage)}`);
    this.#response.end(frames + SSE_DONE);
  }

  /** After an error the stream is closed without [DONE]. */
  fail(error: ApiError): void {
    this.#ended = true;
    if (this.#response.destroyed) return;
    this.#response.end(this.#readyFrames() + sseData(JSON.stringify(error.toBody())));
  }

  #frame(choices: readonly object[], more = ""): string {
    return sseData(`${this.#prefix}${JSON.stringify(choices)}${more}}`);
  }
}
