import type { ServerResponse } from "node:http";
import type { ApiError } from "../../../shared/errors/api-error.ts";
import { SSE_DONE, SSE_HEADERS, sseData } from "../../../shared/sse/writer.ts";
import type { AnswerAssembly, AnswerEnd } from "../openai/answer-assembly.ts";
import type { AnswerForm, AnswerHead, AnswerPart } from "../openai/answer-form.ts";

/** What a stream takes from as it goes; null when nothing new is there. */
export type AnswerSource = Pick<AnswerAssembly, "takePart" | "takeActivations">;

/**
 * One answer as an event stream. Parts that come faster than they can be written are joined: while the client does not
 * read, the buffer holds no more than the answer's text.
 */
export class SseAnswer {
  readonly #response: ServerResponse;
  readonly #form: AnswerForm;
  readonly #source: AnswerSource;
  /** What every chunk repeats, up to its choices. */
  readonly #prefix: string;
  #first = true;
  #scheduled = false;
  #ended = false;

  constructor(response: ServerResponse, head: AnswerHead, form: AnswerForm, source: AnswerSource) {
    this.#response = response;
    this.#form = form;
    this.#source = source;
    const { id, created, model } = head;
    this.#prefix = `${JSON.stringify({ id, object: form.chunkObject, created, model }).slice(0, -1)},"choices":`;
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
    const part = this.#source.takePart();
    const delta = part === null ? "" : this.#deltaFrame(part);
    // The first chunk of an answer is its own: rows of the prompt wait for it.
    const activations = this.#first ? null : this.#source.takeActivations();
    const sensed = activations === null ? "" : this.#frame([], `,"steerage":${JSON.stringify({ activations })}`);
    if (delta !== "" || sensed !== "") this.#response.write(delta + sensed);
  }

  /** Order of the last frames: rest of the text, finish, steerage, usage, [DONE]. */
  end({ part, finishReason, steerage, usage }: AnswerEnd, includeUsage: boolean): void {
    this.#ended = true;
    if (this.#response.destroyed) return;
    let frames = "";
    const rest = part.text !== "" || (part.entries !== null && part.entries.length > 0);
    if (rest || this.#first) frames += this.#deltaFrame(part);
    frames += this.#frame([this.#form.finish(finishReason)]);
    if (steerage !== null) frames += this.#frame([], `,"steerage":${JSON.stringify(steerage)}`);
    if (includeUsage) frames += this.#frame([], `,"usage":${JSON.stringify(usage)}`);
    this.#response.end(frames + SSE_DONE);
  }

  /** After an error the stream is closed without [DONE]. */
  fail(error: ApiError): void {
    this.#ended = true;
    if (this.#response.destroyed) return;
    const part = this.#source.takePart();
    const text = part === null ? "" : this.#deltaFrame(part);
    this.#response.end(text + sseData(JSON.stringify(error.toBody())));
  }

  #deltaFrame(part: AnswerPart): string {
    const frame = this.#frame([this.#form.delta(part, this.#first)]);
    this.#first = false;
    return frame;
  }

  #frame(choices: readonly object[], more = ""): string {
    return sseData(`${this.#prefix}${JSON.stringify(choices)}${more}}`);
  }
}
