/** Literals, classes and comments of GBNF, where braces are no counts; and counts. */
const GBNF = /"(?:\\.|[^"\\])*"|\[(?:\\.|[^\]\\])*\]|#[^\n]*|\{\s*(\d+)\s*,\s*(\d+)\s*\}/gsu;

/**
 * A repetition of at least more than at most, or null. The library reads it as 2^64 repetitions and does not come back,
 * wherever it came from: a grammar, a pattern, or bounds of a schema.
 */
export function reversedCount(grammar: string): string | null {
  for (const [text, least, most] of grammar.matchAll(GBNF)) {
    if (least !== undefined && most !== undefined && Number(least) > Number(most)) return text.replace(/\s+/gu, "");
  }
  return null;
}

/** Why a grammar must not be given to the library; null when it may be. */
export function countFault(grammar: string): string | null {
  const reversed = reversedCount(grammar);
  return reversed === null ? null : `it repeats something at least more often than at most: ${reversed}`;
}
