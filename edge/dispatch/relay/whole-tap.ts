import { joinBytes } from "../../../shared/join-bytes.ts";
import type { TokenCounts } from "../../ports/ledger.ts";
import { parseJson } from "./refusal.ts";
import { isObject, readUsage } from "./usage-reader.ts";

/** Whole answers up to this are kept to read their usage; in longer ones only the last part is searched. */
const MAX_KEPT_BYTES = 2 ** 20;

/** Keeps a bounded copy of a whole answer that passes by, and reads its usage at the end. */
export class WholeTap {
  #parts: Uint8Array[] = [];
  #keptBytes = 0;
  #cut = false;

  push(chunk: Uint8Array): void {
    // Buffers of a connection may be used again once they were handed over.
    this.#parts.push(chunk.slice());
    this.#keptBytes += chunk.length;
    for (;;) {
      const first = this.#parts[0];
      if (first === undefined || this.#keptBytes - first.length < MAX_KEPT_BYTES) return;
      this.#parts.shift();
      this.#keptBytes -= first.length;
      this.#cut = true;
    }
  }

  read(): { readonly usage: TokenCounts | null; readonly receipt: string | null } {
    const text = this.#text();
    if (this.#cut) return { usage: readUsage(lastUsageIn(text)), receipt: null };
    const answer = parseJson(text);
    if (!isObject(answer)) return { usage: null, receipt: null };
    const { usage, steerage } = answer;
    const steering = isObject(steerage) ? steerage["steering"] : null;
    return { usage: readUsage(usage), receipt: typeof steering === "string" ? steering : null };
  }

  #text(): string {
    const [first] = this.#parts;
    const whole = first !== undefined && this.#parts.length === 1 ? first : joinBytes(this.#parts);
    this.#parts = [];
    return UTF8.decode(whole);
  }
}

const UTF8 = new TextDecoder("utf-8");

/** Without the beginning there is no parsing: the last member called `usage` is cut out by its braces. */
function lastUsageIn(text: string): unknown {
  const start = text.lastIndexOf('"usage"');
  const open = start === -1 ? -1 : text.indexOf("{", start);
  if (open === -1) return undefined;
  let depth = 0;
  for (let at = open; at < text.length; at++) {
    const character = text.charAt(at);
    if (character === "{") depth++;
    if (character === "}" && --depth === 0) return parseJson(text.slice(open, at + 1));
  }
  return undefined;
}
