const BASE62 = "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz";

/** Fills a fresh array of the given length with unpredictable bytes; each runtime brings its own. */
export type RandomBytes = (length: number) => Uint8Array;

/**
 * Unpredictable text of exactly `length` base62 characters. Bytes that would favour some characters are thrown
 * away, so every character is equally likely.
 */
export function randomBase62(length: number, randomBytes: RandomBytes): string {
  let text = "";
  while (text.length < length) {
    for (const byte of randomBytes(length - text.length + 8)) {
      if (byte >= 248) continue;
      text += BASE62.charAt(byte % 62);
      if (text.length === length) break;
    }
  }
  return text;
}

/** Ids of requests are made by the edge only: `req_` and 22 base62 characters (131 bits). */
export function newRequestId(randomBytes: RandomBytes): string {
  return `req_${randomBase62(22, randomBytes)}`;
}
