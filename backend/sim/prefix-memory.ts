/** Remembers the last prompts of each salt, as an engine's cache does, and finds how much of a new one is there. */
export class PrefixMemory {
  readonly #limit: number;
  readonly #prompts = new Map<string, string[][]>();

  constructor(limit = 64) {
    this.#limit = limit;
  }

  /** Tokens of `prompt` that need no computing: never all of them, since the last one must be. Remembers `prompt`. */
  take(salt: string, prompt: readonly string[]): number {
    const known = this.#prompts.get(salt) ?? [];
    let longest = 0;
    for (const earlier of known) longest = Math.max(longest, commonLength(earlier, prompt));
    known.push([...prompt]);
    if (known.length > this.#limit) known.shift();
    this.#prompts.delete(salt);
    this.#prompts.set(salt, known);
    if (this.#prompts.size > this.#limit) {
      const oldest = this.#prompts.keys().next().value;
      if (oldest !== undefined) this.#prompts.delete(oldest);
    }
    return Math.max(0, Math.min(longest, prompt.length - 1));
  }
}

function commonLength(a: readonly string[], b: readonly string[]): number {
  let length = 0;
  while (length < a.length && length < b.length && a[length] === b[length]) length++;
  return length;
}
