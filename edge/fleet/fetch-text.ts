import { joinBytes } from "../../shared/join-bytes.ts";
import type { Clock } from "../../shared/time/clock.ts";
import type { Upstream, UpstreamExchange } from "../ports/upstream.ts";
import type { FetchText } from "./endpoint-scraper.ts";

/** A metrics page that is longer is none. */
const MAX_BYTES = 4 * 2 ** 20;

const UTF8 = new TextDecoder();

/**
 * Pages by the adapter that requests take, over connections of their own where their time limit is another than that of
 * requests to connect. No credentials are sent, and no redirect is followed. Not the runtime's own `fetch`, which on
 * Node is a second undici in memory.
 */
export function fetchTextOver(upstream: Upstream, clock: Clock): FetchText {
  return (url, timeoutMs) =>
    new Promise((resolve, reject) => {
      const parts: Uint8Array[] = [];
      let bytes = 0;
      let exchange: UpstreamExchange | null = null;
      let isOver = false;
      const giveUp = (reason: string): void => {
        isOver = true;
        cancelTimer();
        exchange?.abort();
        reject(new Error(reason));
      };
      const cancelTimer = clock.after(timeoutMs, () => giveUp("it took too long"));
      const request = { url, method: "GET", headers: {}, body: null, dialTimeoutMs: timeoutMs } as const;
      exchange = upstream.open(request, {
        onHeaders(status) {
          if (status < 200 || status > 299) giveUp(`status ${status}`);
        },
        onData(chunk) {
          // Buffers of a connection may be used again once they were handed over.
          parts.push(chunk.slice());
          bytes += chunk.byteLength;
          if (bytes > MAX_BYTES) giveUp("the page is too long");
          return true;
        },
        onEnd() {
          cancelTimer();
          resolve(UTF8.decode(joinBytes(parts)));
        },
        onFailure(failure, cause) {
          giveUp(cause instanceof Error && "code" in cause ? String(cause.code) : failure);
        },
      });
      if (isOver) exchange.abort();
    });
}
