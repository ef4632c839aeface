/**
 * Keeps the caller's text from being read as control tokens. A chat template writes control tokens as text, so the
 * rendered prompt must be read with them; what the caller wrote must not. Every control text inside the caller's
 * strings is replaced by a mark before rendering, and read as plain text afterwards. A prompt without such text (nearly
 * every one) is read in one piece, so its tokens are those the model was trained on.
 */
export class ControlText {
  readonly #texts: ReadonlySet<string>;
  readonly #firsts: ReadonlySet<string>;
  /** Longest first, so that the longest control text at a place wins. */
  readonly #lengths: readonly number[];

  constructor(controlTexts: Iterable<string>) {
    this.#texts = new Set([...controlTexts].filter((text) => text !== ""));
    this.#firsts = new Set([...this.#texts].map((text) => text.charAt(0)));
    this.#lengths = [...new Set([...this.#texts].map((text) => text.length))].toSorted((a, b) => b - a);
  }

  /** Replaces control texts in every string within `value`, at any depth, by `mark(text)`. */
  replaceIn(value: unknown, mark: (controlText: string) => string): unknown {
    if (typeof value === "string") return this.replaceInText(value, mark);
    if (Array.isArray(value)) return value.map((entry) => this.replaceIn(entry, mark));
    if (typeof value !== "object" || value === null) return value;
    return Object.fromEntries(Object.entries(value).map(([name, member]) => [name, this.replaceIn(member, mark)]));
  }

  replaceInText(text: string, mark: (controlText: string) => string): string {
    let result = "";
    let copied = 0;
    for (let at = 0; at < text.length;) {
      const found = this.#firsts.has(text.charAt(at)) ? this.#controlTextAt(text, at) : null;
      if (found === null) {
        at += 1;
        continue;
      }
      result += text.slice(copied, at) + mark(found);
      at += found.length;
      copied = at;
    }
    return copied === 0 ? text : result + text.slice(copied);
  }

  #controlTextAt(text: string, at: number): string | null {
    for (const length of this.#lengths) {
      const candidate = text.slice(at, at + length);
      if (this.#texts.has(candidate)) return candidate;
    }
    return null;
  }
}

export interface PromptPiece {
  readonly text: string;
  /** Whether control tokens are read from it. */
  readonly control: boolean;
}

/** Hands out marks for one rendering and finds them again in what came out. */
export class ControlMarks {
  readonly #nonce: string;
  readonly #texts: string[] = [];

  /** `nonce` is unpredictable, so no caller can write a mark. */
  constructor(nonce: string) {
    this.#nonce = nonce;
  }

  readonly mark = (controlText: string): string => {
    this.#texts.push(controlText);
    // A private-use character: no template trims it and no tokenizer is asked about it.
    return `\uE0C0${this.#nonce}.${this.#texts.length - 1}\uE0C0`;
  };

  split(rendered: string): PromptPiece[] {
    if (this.#texts.length === 0) return [{ text: rendered, control: true }];
    const pieces = rendered.split(new RegExp(`\uE0C0${this.#nonce}\\.(\\d+)\uE0C0`, "u"));
    // Odd places hold the number of a mark.
    return pieces
      .map((piece, place) =>
        place % 2 === 0 ? { text: piece, control: true } : { text: this.#texts[Number(piece)] ?? "", control: false },
      )
      .filter(({ text }, place) => text !== "" || place === 0);
  }
}
