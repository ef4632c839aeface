import { describe, expect, it } from "vitest";
import { reasoningSpan, TokenSpans } from "../../../../backend/engine/text/token-spans.ts";

const encoder = new TextEncoder();
function spansOf(...tokens: readonly (string | readonly number[])[]): TokenSpans {
  const spans = new TokenSpans();
  for (const token of tokens) spans.add(typeof token === "string" ? encoder.encode(token) : Uint8Array.from(token));
  return spans;
}
/** What stands between the marks so far; a mark that may have begun is waited for. */
const read = (beginning: string): string => {
  const open = beginning.indexOf("<t>");
  if (open < 0) return "";
  const inside = beginning.slice(open + 3).split("</t>")[0] ?? "";
  return inside.replace(/<(?:\/t?)?$/u, "").trim();
};
const piece = (text: string, reasoning: string): string | null => {
  const span = reasoningSpan(text, reasoning, read);
  return span === null ? null : text.slice(span.start, span.end);
};

describe("the tokens of a part of an answer", () => {
  it("are those that wrote something of it", () => {
    const spans = spansOf("ab", "cd", "ef", "gh");
    expect(spans.countWithin({ start: 2, end: 6 })).toBe(2);
    expect(spans.countWithin({ start: 3, end: 7 })).toBe(3);
    expect(spans.countWithin({ start: 0, end: 0 })).toBe(0);
  });

  it("are also those with a part of a character, and none without bytes before or after it", () => {
    const sea = [...encoder.encode("海")];
    const spans = spansOf("<t>", sea.slice(0, 1), sea.slice(1, 2), sea.slice(2), "</t>", "");
    expect(spans.countWithin({ start: 3, end: 4 })).toBe(3);
    expect(spansOf("ab", "").countWithin({ start: 0, end: 2 })).toBe(1);
  });
});

describe("where the reasoning of an answer stands", () => {
  it.each([
    ["<t>\nIt is so\n</t>\n\nYes.", "It is so", "\nIt is so\n"],
    ["<t>so</t>so", "so", "so"],
    ["<t>t</t>t", "t", "t"],
    ["<t>a < b <</t>x", "a < b <", "a < b <"],
    ["<t>cut off ", "cut off", "cut off "],
    ["no marks", "", ""],
  ])("%j with %j", (text, reasoning, expected) => {
    expect(piece(text, reasoning)).toBe(expected);
  });

  it("is not known where it is no one piece of the text", () => {
    expect(piece("<t>one</t>and<t>two</t>", "onetwo")).toBeNull();
    expect(reasoningSpan("a b", "b", () => "other")).toBeNull();
  });
});
