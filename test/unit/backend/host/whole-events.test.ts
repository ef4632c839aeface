import { describe, expect, it } from "vitest";
import { WholeEventFilter } from "../../../../backend/host/whole-events.ts";

const STREAM = 'data: {"a":1}\n\n: still here\n\ndata: {"b":"é"}\n\ndata: [DONE]\n\n';

describe("the filter of whole events", () => {
  it("passes every byte on, in whole events, wherever chunks are cut", () => {
    const bytes = Buffer.from(STREAM);
    for (let size = 1; size <= bytes.length; size++) {
      const filter = new WholeEventFilter();
      let passed = "";
      let events = 0;
      for (let at = 0; at < bytes.length; at += size) {
        const whole = filter.push(bytes.subarray(at, at + size));
        const text = Buffer.from(whole.bytes).toString("utf8");
        expect(text === "" || text.endsWith("\n\n")).toBe(true);
        passed += text;
        events += whole.events;
      }
      expect(passed).toBe(STREAM);
      // Two JSON objects: neither the comment nor the mark of the end is counted.
      expect(events).toBe(2);
    }
  });

  it("counts events, not what an answer says of events", () => {
    const event = `data: ${JSON.stringify({ text: "a stream is data: {} and data: {}" })}\n\n`;
    expect(new WholeEventFilter().push(Buffer.from(event + event)).events).toBe(2);
  });

  it("holds an unfinished event back, and gives it out only when asked", () => {
    const filter = new WholeEventFilter();
    expect(filter.push(Buffer.from("data: {")).bytes).toHaveLength(0);
    expect(Buffer.from(filter.rest()).toString()).toBe("data: {");
    expect(filter.rest()).toHaveLength(0);
  });

  it("passes an event in parts that is too long to hold", () => {
    const filter = new WholeEventFilter();
    filter.push(Buffer.from("data: "));
    const long = filter.push(Buffer.alloc(2 ** 20 + 1, "x"));
    expect(long.bytes).toHaveLength(2 ** 20 + 7);
  });
});
