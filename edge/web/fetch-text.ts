import type { FetchText } from "../fleet/endpoint-scraper.ts";

/** A metrics page that is longer is none. */
const MAX_BYTES = 4 * 2 ** 20;

/** A page by the runtime's own fetch. No credentials are sent, and no redirect is followed. */
export const fetchText: FetchText = async (url, timeoutMs) => {
  const response = await fetch(url, { redirect: "error", signal: AbortSignal.timeout(timeoutMs) });
  if (!response.ok) {
    await response.body?.cancel();
    throw new Error(`status ${response.status}`);
  }
  const decoder = new TextDecoder();
  let text = "";
  let bytes = 0;
  if (response.body === null) return text;
  for await (const chunk of response.body) {
    bytes += chunk.byteLength;
    if (bytes > MAX_BYTES) throw new Error("the page is too long");
    text += decoder.decode(chunk, { stream: true });
  }
  return text + decoder.decode();
};
