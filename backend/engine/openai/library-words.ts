/** Longest text of a library that is passed on, characters. */
const MAX_LENGTH = 300;

/** What libraries put before the point: their own names, and steps of theirs that callers know nothing of. */
const PREFIXES =
  /^(?:Unable to generate parser for this template\.|Automatic parser generation failed:|JSON schema conversion failed:|Jinja Exception:|\[json\.exception\.[^\]]*\])\s*/u;

/**
 * The point of an error of the template or schema library, as one line for callers: without source of the template,
 * which stands before the last `Error:`, and without prefixes.
 */
export function plainWords(said: string): string {
  let text = said.slice(said.lastIndexOf("\nError: ") + 1).replace(/^Error: /u, "");
  for (let stripped = text.replace(PREFIXES, ""); stripped !== text; stripped = text.replace(PREFIXES, ""))
    text = stripped;
  const line = text.replace(/\s+/gu, " ").trim();
  if (line === "") return "no reason was given";
  return line.length > MAX_LENGTH ? `${line.slice(0, MAX_LENGTH)}…` : line;
}
