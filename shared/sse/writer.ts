/** What ends a complete OpenAI stream. */
export const SSE_DONE = "data: [DONE]\n\n";

/** Headers of every event stream: no cache and no proxy on the way may hold or change it. */
export const SSE_HEADERS: Readonly<Record<string, string>> = {
  "content-type": "text/event-stream; charset=utf-8",
  "cache-control": "no-cache, no-transform",
  "x-accel-buffering": "no",
};

/** One frame around text that may have line breaks; never an id, since clients dispatch on it (case C005). */
export function sseData(data: string): string {
  if (!data.includes("\n") && !data.includes("\r")) return `data: ${data}\n\n`;
  return `${data
    .split(/\r\n|\r|\n/)
    .map((line) => `data: ${line}`)
    .join("\n")}\n\n`;
}

/** A keep-alive that no client dispatches. */
export function sseComment(text: string): string {
  return `: ${text.replace(/[\r\n]+/g, " ")}\n\n`;
}
