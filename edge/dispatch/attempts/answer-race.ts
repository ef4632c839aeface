import type { AnswerSink } from "../relay/answer-sink.ts";

/**
 * One answer for which several attempts run: what they do to its head is held back, and the first to bring a byte of
 * the body has it for itself.
 */
export class AnswerRace {
  readonly #answer: AnswerSink;
  readonly #lanes: RaceLane[] = [];

  constructor(answer: AnswerSink) {
    this.#answer = answer;
  }

  /** `onLost` is called once, when another lane has won. */
  lane(onLost: () => void): RaceLane {
    const lane = new RaceLane(this.#answer, {
      onLost,
      win: () => {
        for (const other of this.#lanes) if (other !== lane) other.lose();
      },
    });
    this.#lanes.push(lane);
    return lane;
  }

  get isDecided(): boolean {
    return this.#lanes.some(({ state }) => state === "won");
  }
}

export class RaceLane implements AnswerSink {
  readonly #answer: AnswerSink;
  readonly #race: { readonly onLost: () => void; readonly win: () => void };
  readonly #head: (() => void)[] = [];
  #state: "running" | "won" | "lost" = "running";
  #startedAs: AnswerSink["startedAs"] = null;
  #onRoom: () => void = () => undefined;

  constructor(answer: AnswerSink, race: { readonly onLost: () => void; readonly win: () => void }) {
    this.#answer = answer;
    this.#race = race;
  }

  get state(): "running" | "won" | "lost" {
    return this.#state;
  }

  get startedAs(): AnswerSink["startedAs"] {
    return this.#startedAs ?? this.#answer.startedAs;
  }

  get onRoom(): () => void {
    return this.#onRoom;
  }

  set onRoom(listener: () => void) {
    this.#onRoom = listener;
    if (this.#state === "won") this.#answer.onRoom = listener;
  }

  setHeaders(headers: Readonly<Record<string, string>>): void {
    this.#onHead(() => this.#answer.setHeaders(headers));
  }

  startStream(): void {
    this.#startedAs = "stream";
    this.#onHead(() => this.#answer.startStream());
  }

  startWhole(status: number, headers: Readonly<Record<string, string>>): void {
    this.#startedAs = "whole";
    this.#onHead(() => this.#answer.startWhole(status, headers));
  }

  write(chunk: Uint8Array | string): boolean {
    this.win();
    return this.#state === "lost" || this.#answer.write(chunk);
  }

  drop(): void {
    if (this.#state === "won") this.#answer.drop();
  }

  /** It is the one that answers, unless another was before it. */
  win(): void {
    if (this.#state !== "running") return;
    this.#state = "won";
    this.#race.win();
    this.#answer.onRoom = this.#onRoom;
    for (const act of this.#head.splice(0)) act();
  }

  lose(): void {
    if (this.#state !== "running") return;
    this.#state = "lost";
    this.#race.onLost();
  }

  #onHead(act: () => void): void {
    if (this.#state === "won") act();
    else if (this.#state === "running") this.#head.push(act);
  }
}
