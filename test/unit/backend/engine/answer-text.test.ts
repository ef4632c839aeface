import * as fc from "fast-check";
import { describe, expect, it } from "vitest";
import { AnswerText } from "../../../../backend/engine/text/answer-text.ts";
import { LogprobTrail } from "../../../../backend/engine/text/logprob-trail.ts";

const utf8 = (text: string): Uint8Array => new TextEncoder().encode(text);

/** Cuts bytes at the given places, as tokens would. */
function pieces(bytes: Uint8Array, cuts: readonly number[]): Uint8Array[] {
  const at = [...new Set(cuts.map((cut) => cut % (bytes.length + 1)))].toSorted((a, b) => a - b);
  return [...at, bytes.length].map((end, place) => bytes.subarray(at[place - 1] ?? 0, end));
}

/** Where the earliest stop string begins, in bytes, as the native core finds it. */
function stopAt(bytes: Uint8Array, stops: readonly string[]): number {
  const found = stops.map((stop) => Buffer.from(bytes).indexOf(stop)).filter((at) => at >= 0);
  return found.length === 0 ? -1 : Math.min(...found);
}

describe("the text of an answer", () => {
  it("never splits a character", () => {
    const text = new AnswerText([]);
    const [a, b, c, d] = utf8("😀");
    expect([a, b, c, d].map((byte) => text.push(Uint8Array.of(byte ?? 0)))).toEqual(["", "", "", "😀"]);
  });

  it("drops an incomplete character at the end, and says nothing in its place", () => {
    const text = new AnswerText([]);
    expect(text.push(utf8("日😀").subarray(0, 5))).toBe("日");
    expect(text.end(-1)).toBe("");
  });

  it("gives back what was held for a stop string when the model ends first", () => {
    const text = new AnswerText(["TRE\nAAAA"]);
    expect(["UNO", " DUE", " TRE"].map((token) => text.push(utf8(token)))).toEqual(["UNO", " DUE", " "]);
    expect(text.end(-1)).toBe("TRE");
  });

  it("shows nothing from where a stop string begins, even inside one token", () => {
    const text = new AnswerText(["ab"]);
    expect(text.push(utf8("xabz"))).toBe("x");
    expect(text.end(1)).toBe("");
  });

  it("keeps a byte order mark that the model wrote", () => {
    expect(new AnswerText([]).push(utf8("\uFEFFx"))).toBe("\uFEFFx");
  });

  it("is the same text whatever the borders of its tokens", () => {
    const answer = fc.oneof(
      fc.string({ unit: "grapheme", maxLength: 40 }),
      fc.string({ unit: fc.constantFrom("a", "b", "é") }),
    );
    const stops = fc.array(fc.string({ unit: fc.constantFrom("a", "b", "é"), minLength: 1, maxLength: 3 }), {
      maxLength: 4,
    });
    fc.assert(
      fc.property(answer, stops, fc.array(fc.nat()), (whole, stopStrings, cuts) => {
        const bytes = utf8(whole);
        const end = stopAt(bytes, stopStrings);
        const text = new AnswerText(stopStrings);
        let streamed = "";
        for (const piece of pieces(bytes, cuts)) {
          streamed += text.push(piece);
          // Before the end is known, nothing beyond it has been shown.
          expect(utf8(streamed).length).toBeLessThanOrEqual(end < 0 ? bytes.length : end);
        }
        streamed += text.end(end);
        expect(streamed).toBe(end < 0 ? whole : Buffer.from(bytes.subarray(0, end)).toString("utf8"));
      }),
    );
  });

  it("turns any bytes into valid text that does not depend on the borders", () => {
    fc.assert(
      fc.property(fc.uint8Array({ maxLength: 40 }), fc.array(fc.nat()), (bytes, cuts) => {
        const whole = new AnswerText([]);
        const expected = whole.push(bytes) + whole.end(-1);
        const text = new AnswerText([]);
        const streamed =
          pieces(bytes, cuts)
            .map((piece) => text.push(piece))
            .join("") + text.end(-1);
        expect(streamed).toBe(expected);
        expect(Buffer.from(streamed, "utf8").toString("utf8")).toBe(streamed);
      }),
    );
  });
});

const sampled = (bytes: Uint8Array, logprob = -1) => ({
  token: 1,
  bytes,
  logprobs: { jobId: 1, logprob, topTokens: Int32Array.of(7), topLogprobs: Float32Array.of(-Infinity) },
});

describe("log-probabilities", () => {
  it("leave with the text they belong to, and their bytes joined are the answer", () => {
    const trail = new LogprobTrail(() => utf8("?"));
    for (const byte of utf8("é")) trail.add(sampled(Uint8Array.of(byte)));
    trail.add(sampled(utf8("stop")));
    expect(trail.take(1)).toHaveLength(1);
    expect(trail.take(2).map(({ bytes }) => [...bytes])).toEqual([[0xa9]]);
    expect(trail.end(4).map(({ bytes }) => Buffer.from(bytes).toString())).toEqual(["st"]);
  });

  it("are finite and at most zero, and tokens without text have none", () => {
    const trail = new LogprobTrail(() => utf8("?"));
    trail.add(sampled(utf8("a"), 1e-7));
    trail.add(sampled(new Uint8Array(0)));
    expect(trail.end(9)).toEqual([{ bytes: utf8("a"), logprob: 0, top: [{ bytes: utf8("?"), logprob: -9_999 }] }]);
  });
});
