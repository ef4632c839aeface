import { describe, expect, it } from "vitest";
import { SharedAnswer } from "../../../../../edge/dispatch/idempotency/shared-answer.ts";
import { ManualClock } from "../../../../support/manual-clock.ts";
import { RecordingWriter } from "../../../../support/dispatch-fakes.ts";

const JSON_HEAD = { "content-type": "application/json" };
const STREAM_HEAD = { "Content-Type": "text/event-stream" };
const FIRST = { isFirst: true, headers: {} };
const OTHER = { isFirst: false, headers: { "idempotent-replayed": "true" } };

function setUp(maxBytes = 1_000) {
  const clock = new ManualClock();
  const answer = new SharedAnswer({ clock, maxBytes, lingerMs: () => 30_000 });
  const state = { left: false, drained: 0 };
  answer.onClosed(() => (state.left = true));
  answer.onDrain(() => (state.drained += 1));
  return { clock, answer, state, first: new RecordingWriter(), other: new RecordingWriter() };
}

const text = (body: Uint8Array | null | undefined): string | null =>
  body === null || body === undefined ? null : new TextDecoder().decode(body);

describe("an answer that several clients get", () => {
  it("reaches each of them from its first byte, also one that comes in the middle", async () => {
    const { answer, first, other } = setUp();
    const firsts = answer.follow(first, FIRST);
    answer.start(200, STREAM_HEAD);
    answer.write("data: 1\n\n");
    const others = answer.follow(other, OTHER);
    expect(other.text).toBe("data: 1\n\n");
    answer.write(new TextEncoder().encode("data: [DONE]\n\n"));
    answer.end();
    expect([await firsts, await others]).toEqual(["answered", "answered"]);
    expect([first.text, first.ended, other.text, other.ended]).toEqual([
      "data: 1\n\ndata: [DONE]\n\n",
      true,
      first.text,
      true,
    ]);
    expect(first.headers).toEqual(STREAM_HEAD);
    expect(other.headers).toEqual({ ...STREAM_HEAD, "idempotent-replayed": "true" });
    expect(text(answer.recorded?.body)).toBe(first.text);
  });

  it("goes at the pace of each, and holds back nobody for the slowest while it is recorded", () => {
    const { answer, first, other } = setUp();
    void answer.follow(first, FIRST);
    void answer.follow(other, OTHER);
    answer.start(200, STREAM_HEAD);
    other.room = false;
    expect([answer.write("a"), answer.write("b")]).toEqual([true, true]);
    expect([first.text, other.text]).toEqual(["ab", "a"]);
    other.drain();
    expect(other.text).toBe("ab");
  });

  it("is no answer when it is an error: the first client has that to itself, the others ask anew", async () => {
    const { answer, first, other } = setUp();
    void answer.follow(first, FIRST);
    const others = answer.follow(other, OTHER);
    answer.start(503, JSON_HEAD);
    answer.write("{}");
    answer.end();
    expect(await others).toBe("again");
    expect([first.status, first.text, other.started]).toEqual([503, "{}", false]);
    expect(answer.recorded).toBeNull();
    expect(await answer.follow(new RecordingWriter(), OTHER)).toBe("again");
  });

  it("is not kept when a stream ends without its mark, or breaks off", async () => {
    const { answer, first } = setUp();
    void answer.follow(first, FIRST);
    answer.start(200, STREAM_HEAD);
    answer.write('data: {"error":{}}\n\n');
    answer.end();
    expect(answer.recorded).toBeNull();
    expect(await answer.follow(new RecordingWriter(), OTHER)).toBe("again");
    const broken = setUp();
    void broken.answer.follow(broken.first, FIRST);
    broken.answer.start(200, JSON_HEAD);
    broken.answer.destroy();
    expect([broken.first.destroyed, broken.answer.recorded]).toEqual([true, null]);
  });

  it("goes on for a while without clients, for one that comes back, and is given up after that", async () => {
    const { clock, answer, state, first, other } = setUp();
    void answer.follow(first, FIRST);
    answer.start(200, JSON_HEAD);
    first.leave();
    clock.advance(29_999);
    expect([state.left, answer.closed]).toEqual([false, false]);
    const others = answer.follow(other, OTHER);
    clock.advance(60_000);
    expect(state.left).toBe(false);
    other.leave();
    expect(await others).toBe("answered");
    clock.advance(30_000);
    expect([state.left, answer.closed]).toEqual([true, true]);
    expect(await answer.follow(new RecordingWriter(), OTHER)).toBe("again");
  });

  it("too large is passed on with back-pressure, kept by nobody and given to nobody else", async () => {
    const { answer, state, first, other } = setUp(10);
    const firsts = answer.follow(first, FIRST);
    answer.start(200, JSON_HEAD);
    first.room = false;
    expect(answer.write("x".repeat(20))).toBe(true);
    expect(await answer.follow(other, OTHER)).toBe("not_kept");
    expect(answer.write("y".repeat(70_000))).toBe(false);
    first.drain();
    expect(state.drained).toBe(1);
    answer.end();
    expect(await firsts).toBe("answered");
    expect(first.text).toHaveLength(70_020);
    expect(answer.recorded).toEqual({ status: 200, headers: JSON_HEAD, body: null });
  });

  it("too large is given up at once when its client leaves", () => {
    const { answer, state, first } = setUp(10);
    void answer.follow(first, FIRST);
    answer.start(200, JSON_HEAD);
    answer.write("x".repeat(20));
    first.leave();
    expect(state.left).toBe(true);
  });
});
