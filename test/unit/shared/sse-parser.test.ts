import { array, assert, nat, property, string } from "fast-check";
import { describe, expect, it } from "vitest";
import { SseEventTooLarge, SseParser, type SseEvent } from "../../../shared/sse/parser.ts";
import { sseComment, sseData } from "../../../shared/sse/writer.ts";

const parser = () => new SseParser({ maxEventLength: 10_000 });
const small = () => new SseParser({ maxEventLength: 10 });
const parse = (...chunks: string[]): SseEvent[] => {
  const one = parser();
  return chunks.flatMap((chunk) => one.push(chunk));
};
const data = (...chunks: string[]) => parse(...chunks).map((event) => event.data);

describe("the SSE parser", () => {
  it.each([
    ["LF", "data: a\n\ndata: b\n\n"],
    ["CRLF", "data: a\r\n\r\ndata: b\r\n\r\n"],
    ["bare CR", "data: a\r\rdata: b\r\r"],
    ["no space after the colon", "data:a\n\ndata:b\n\n"],
    ["a byte order mark", "\uFEFFdata: a\n\ndata: b\n\n"],
    ["comments between", ": hi\n\ndata: a\n\n: WAITING\n\ndata: b\n\n"],
    ["ids and retry hints", "id: 1\ndata: a\n\nretry: 5\nid: 2\ndata: b\n\n"],
  ])("reads %s whatever the chunk borders", (_name, stream) => {
    expect(data(stream)).toEqual(["a", "b"]);
    expect(data(...Array.from(stream))).toEqual(["a", "b"]);
    for (let cut = 1; cut < stream.length; cut++)
      expect(data(stream.slice(0, cut), stream.slice(cut))).toEqual(["a", "b"]);
  });

  it("joins several data lines and keeps the event name of its own event only", () => {
    expect(parse("event: error\ndata: 1\ndata: 2\n\ndata: 3\n\n")).toEqual([
      { event: "error", data: "1\n2" },
      { event: "", data: "3" },
    ]);
  });

  it("does not dispatch an event that has no data line, and does dispatch one that is empty", () => {
    expect(parse("event: ping\n\ndata:\n\n")).toEqual([{ event: "", data: "" }]);
  });

  it("says when a stream was cut inside an event", () => {
    const cut = parser();
    cut.push("data: a\n\n");
    expect(cut.unfinished).toBe(false);
    cut.push("data: b\n");
    expect(cut.unfinished).toBe(true);
  });

  it("refuses an endless line and an endless event", () => {
    expect(() => small().push("data: 0123456789abcdef")).toThrow(SseEventTooLarge);
    expect(() => small().push("data: 01234\ndata: 56789\ndata: a\n")).toThrow(SseEventTooLarge);
    expect(small().push("data: 0123456789\n\n")).toHaveLength(1);
  });

  it("gives back what the writer wrote, cut anywhere", () => {
    assert(
      property(
        array(
          string({ unit: "grapheme", maxLength: 40 }).map((text) => text.replaceAll("\uFEFF", "")),
          { maxLength: 8 },
        ),
        array(nat(200), { maxLength: 10 }),
        (texts, cuts) => {
          const stream = texts.map((text) => sseComment("wait") + sseData(text)).join("");
          const borders = [
            0,
            ...cuts.map((cut) => Math.min(cut, stream.length)).toSorted((a, b) => a - b),
            stream.length,
          ];
          const chunks = borders.slice(1).map((end, i) => stream.slice(borders[i], end));
          expect(data(...chunks)).toEqual(texts.map((text) => text.replace(/\r\n|\r/g, "\n")));
        },
      ),
    );
  });
});
