/** Two 32-bit lanes, mixed apart and folded into 53 bits: for placement and lookup, never for secrets. */
export class TextHash {
  #high: number;
  #low: number;

  constructor(seed = 0) {
    this.#high = 0x9e3779b1 ^ seed;
    this.#low = 0x85ebca77 ^ Math.imul(seed, 0x27d4eb2f);
  }

  update(text: string, from = 0, to = text.length): this {
    let high = this.#high;
    let low = this.#low;
    for (let place = from; place < to; place++) {
      const code = text.charCodeAt(place);
      high = Math.imul(high ^ code, 0x01000193);
      high ^= high >>> 15;
      low = Math.imul(low ^ (code + 0x9e37), 0x5bd1e995);
      low ^= low >>> 13;
    }
    this.#high = high;
    this.#low = low;
    return this;
  }

  /** An integer from 0 to 2^53 - 1. May go on being updated. */
  value(): number {
    const high = finished(this.#high ^ (this.#low >>> 7));
    const low = finished(this.#low ^ Math.imul(this.#high, 0x165667b1));
    return (high & 0x1fffff) * 2 ** 32 + (low >>> 0);
  }
}

function finished(bits: number): number {
  let mixed = Math.imul(bits ^ (bits >>> 16), 0x7feb352d);
  mixed = Math.imul(mixed ^ (mixed >>> 15), 0x846ca68b);
  return mixed ^ (mixed >>> 16);
}
