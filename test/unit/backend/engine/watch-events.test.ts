import { describe, expect, it } from "vitest";
import {
  EventHistory,
  type KeptEvent,
  type ThresholdEvent,
} from "../../../../backend/engine/monitoring/event-history.ts";
import { sequenceAfter, streamEvents, type StreamWriter } from "../../../../backend/engine/monitoring/event-stream.ts";
import { ManualClock } from "../../../support/manual-clock.ts";

const event = (position: number): ThresholdEvent => ({
  at_ms: 1,
  request_id: "req",
  attempt: 1,
  position,
  part: "prompt",
  feature: 7,
  value: 2,
});
function history(capacity: number, count: number): EventHistory {
  const kept = new EventHistory(capacity);
  for (let position = 0; position < count; position += 1) kept.add(event(position));
  return kept;
}
const sequences = (events: readonly KeptEvent[]) => events.map(({ sequence }) => sequence);

describe("the history of events", () => {
  it("keeps the newest, under numbers that go on", () => {
    const kept = history(3, 5);
    expect([sequences(kept.after(0)), kept.lastSequence]).toEqual([[3, 4, 5], 5]);
    expect(sequences(kept.after(3))).toEqual([4, 5]);
    expect(sequences(kept.after(2, 2))).toEqual([3, 4]);
    expect(kept.after(5)).toEqual([]);
  });

  it("tells a listener what is kept, then what comes, and its end once", () => {
    const kept = history(3, 2);
    const heard: (number | string)[] = [];
    const leave = kept.follow(1, { event: ({ sequence }) => heard.push(sequence), ended: () => heard.push("end") });
    kept.add(event(9));
    kept.close();
    kept.add(event(10));
    leave();
    expect(heard).toEqual([2, 3, "end"]);
    kept.follow(0, { event: () => undefined, ended: () => heard.push("at once") });
    expect(heard.at(-1)).toBe("at once");
  });

  it("tells nothing to a listener who has left", () => {
    const kept = history(3, 0);
    const heard: number[] = [];
    kept.follow(0, { event: ({ sequence }) => heard.push(sequence), ended: () => heard.push(-1) })();
    kept.add(event(0));
    kept.close();
    expect([heard, kept.listenerCount]).toEqual([[], 0]);
  });
});

class Writer implements StreamWriter {
  text = "";
  /** Whether the reader takes what is written. */
  reads = true;
  ended = false;
  destroyed = false;
  writableLength = 0;
  write(text: string): void {
    this.text += text;
    if (!this.reads) this.writableLength += text.length;
  }
  end(): void {
    this.ended = true;
  }
  destroy(): void {
    this.destroyed = true;
  }
}

describe("the stream of events", () => {
  const open = (kept: EventHistory, afterSequence = 0, writer = new Writer()) => {
    const clock = new ManualClock();
    const stop = streamEvents({ history: kept, epoch: 100, afterSequence, writer, clock });
    return { clock, writer, stop };
  };

  it("has an id, a kind and one event's data in a frame", () => {
    const { writer } = open(history(5, 2), 1);
    expect(writer.text).toBe(
      `: heartbeat\n\nid: 100.2\nevent: threshold\ndata: ${JSON.stringify({ sequence: 2, ...event(1) })}\n\n`,
    );
  });

  it("beats while nothing happens, and not after its reader left", () => {
    const kept = history(5, 0);
    const { clock, writer, stop } = open(kept);
    clock.advance(31_000);
    expect(writer.text).toBe(": heartbeat\n\n".repeat(3));
    stop();
    clock.advance(60_000);
    kept.add(event(1));
    expect([writer.text.length, clock.pendingTimers, kept.listenerCount]).toEqual([39, 0, 0]);
  });

  it("drops a reader who does not read, instead of keeping everything for him", () => {
    const kept = history(5, 0);
    const { clock, writer } = open(kept);
    writer.reads = false;
    for (let count = 0; count < 20_000 && !writer.destroyed; count += 1) kept.add(event(count));
    expect([writer.destroyed, kept.listenerCount, clock.pendingTimers]).toEqual([true, 0, 0]);
    expect(writer.writableLength).toBeLessThan(1_100_000);
    const before = writer.text.length;
    kept.add(event(1));
    kept.close();
    expect([writer.text.length, writer.ended]).toEqual([before, false]);
  });

  it("drops him even while it tells him what was kept", () => {
    const kept = history(20_000, 20_000);
    const writer = new Writer();
    writer.reads = false;
    open(kept, 0, writer);
    expect([writer.destroyed, kept.listenerCount]).toEqual([true, 0]);
  });

  it("ends with the list", () => {
    const kept = history(5, 0);
    const { clock, writer } = open(kept);
    kept.close();
    expect([writer.ended, clock.pendingTimers]).toEqual([true, 0]);
  });

  it.each([
    ["100.7", 7],
    ["99.7", 0],
    ["7", 0],
    ["100.x", 0],
    [undefined, 0],
  ])("goes on for a reader who comes back with %s after %i", (header, sequence) => {
    expect(sequenceAfter(header, 100)).toBe(sequence);
  });
});
