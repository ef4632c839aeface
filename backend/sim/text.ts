/** A small deterministic source of numbers in [0, 1): the same seed gives the same text everywhere. */
export function seededRandom(seed: number): () => number {
  let state = (seed ^ 0x9e3779b9) >>> 0;
  return () => {
    state = (state + 0x6d2b79f5) >>> 0;
    let mixed = Math.imul(state ^ (state >>> 15), 1 | state);
    mixed = (mixed + Math.imul(mixed ^ (mixed >>> 7), 61 | mixed)) ^ mixed;
    return ((mixed ^ (mixed >>> 14)) >>> 0) / 2 ** 32;
  };
}

/** FNV-1a over UTF-16 units. */
export function hashOf(text: string): number {
  let hash = 0x811c9dc5;
  for (let at = 0; at < text.length; at++) hash = Math.imul(hash ^ text.charCodeAt(at), 0x01000193);
  return hash >>> 0;
}

const WORDS = (
  "the river ran past an old mill and a child sat by its bank counting boats that came from far towns with salt " +
  "and wool while evening light lay warm on every roof until stars woke over quiet hills and somebody sang"
).split(" ");

/** The n-th token of a text: one word, with the space before it from the second on. */
export function wordAt(index: number, random: () => number): string {
  const word = WORDS[Math.floor(random() * WORDS.length)] ?? "word";
  return index === 0 ? word : ` ${word}`;
}

/** One token a word: the simplest rule under which counts can be checked by hand. */
export function tokensOf(text: string): string[] {
  return text.match(/\S+/g) ?? [];
}
