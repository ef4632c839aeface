import * as fc from "fast-check";
import { describe, expect, it } from "vitest";
import { ClientAnswer } from "../../../../../edge/dispatch/relay/client-answer.ts";
import { Relay } from "../../../../../edge/dispatch/relay/relay.ts";
import { DEFAULT_DISPATCH_SETTINGS } from "../../../../../edge/dispatch/settings.ts";
import { RecordingWriter } from "../../../../support/dispatch-fakes.ts";
import { ManualClock } from "../../../../support/manual-clock.ts";
import { delta, FakeUpstream, finish, usageChunk } from "../../../../support/scripted-exchange.ts";

const frame = (value: unknown): string => `data: ${typeof value === "string" ? value : JSON.stringify(value)}\n\n`;

function begun() {
  const clock = new ManualClock();
  const writer = new RecordingWriter();
  const answer = new ClientAnswer({ writer, clock, isStream: true, keepAliveMs: 15_000 });
  const { timeouts } = DEFAULT_DISPATCH_SETTINGS;
  const relay = new Relay({
    clock,
    answer,
    target: { kind: "host" },
    isStream: true,
    clientWantsUsage: false,
    timeouts,
  });
  const upstream = new FakeUpstream();
  const result = relay.run(upstream, {
    url: "http://x.test",
    method: "POST",
    headers: {},
    body: null,
    dialTimeoutMs: 0,
  });
  const [machine] = upstream.exchanges;
  if (machine === undefined) throw new Error("the relay opens its exchange at once");
  return { clock, writer, answer, relay, result, machine };
}

describe("the relay", () => {
  const values = [delta("é日😀"), delta("b"), delta("c"), finish("stop")];
  const source = new TextEncoder().encode([...values, usageChunk(5, 3), "[DONE]"].map(frame).join(""));

  it("brings the same text whatever the chunk borders and whenever the client is slow, and ends once", async () => {
    await fc.assert(
      fc.asyncProperty(
        fc.array(fc.nat(source.length - 1), { maxLength: 30 }),
        fc.array(fc.boolean(), { minLength: 31, maxLength: 31 }),
        async (borders, slow) => {
          const { clock, writer, answer, result, machine } = begun();
          machine.stream();
          const cuts = [...new Set([0, ...borders, source.length])].toSorted((a, b) => a - b);
          for (let place = 1; place < cuts.length; place++) {
            writer.room = slow[place] !== true;
            machine.bytes(source.subarray(cuts[place - 1], cuts[place]));
            clock.advance(10);
            if (!writer.room) writer.drain();
          }
          machine.end();
          const { kind, usage, tail, tokenEvents } = await result;
          answer.finish(tail);
          expect({ kind, usage, tokenEvents }).toEqual({
            kind: "completed",
            usage: { promptTokens: 5, cachedTokens: 0, completionTokens: 3 },
            tokenEvents: 3,
          });
          expect(writer.text).toBe([...values, "[DONE]"].map(frame).join(""));
          expect(writer.ended).toBe(true);
          expect(clock.pendingTimers).toBe(0);
        },
      ),
    );
  });

  it("ends once wherever the stream is cut, by the machine, by the client or by time, and leaves no timer", async () => {
    await fc.assert(
      fc.asyncProperty(
        fc.nat(source.length - 3),
        fc.constantFrom("machine" as const, "client" as const, "time" as const, "end" as const),
        async (border, by) => {
          const { clock, relay, result, machine } = begun();
          machine.stream().bytes(source.subarray(0, border));
          if (by === "machine") machine.fail("closed_in_body");
          if (by === "client") relay.cancel();
          if (by === "time") clock.advance(60_000);
          if (by === "end") machine.end();
          relay.cancel();
          relay.expire("total_timeout");
          const { kind, retryable } = await result;
          expect(kind).toBe(by === "client" ? "cancelled" : "failed");
          expect(retryable).toBe(false);
          expect(machine.aborted).toBe(true);
          expect(clock.pendingTimers).toBeLessThanOrEqual(1);
        },
      ),
    );
  });

  it.each([
    { sent: false, what: "no connection had taken: nothing was computed", nothingComputed: true },
    { sent: true, what: "a connection had taken: only the machine can tell", nothingComputed: false },
  ])("knows of a request that the client left and $what", async ({ sent, nothingComputed }) => {
    const { relay, result, machine } = begun();
    machine.sent = sent;
    relay.cancel();
    expect(await result).toMatchObject({ kind: "cancelled", nothingComputed });
  });

  it("lets the connection be used again when the machine ends its answer, and closes it when that takes long", async () => {
    const { clock, result, machine } = begun();
    machine.stream().bytes(source);
    expect((await result).kind).toBe("completed");
    expect(machine.aborted).toBe(false);
    clock.advance(1_000);
    expect(machine.aborted).toBe(true);
  });

  it("refuses an event stream nobody asked for and a whole answer inside a stream", async () => {
    const { answer, result, machine, clock } = begun();
    clock.advance(15_000);
    expect(answer.startedAs).toBe("stream");
    machine.headers(200, { "content-type": "application/json" });
    expect((await result).refusal?.body.error.code).toBe("upstream_error");
    expect(machine.aborted).toBe(true);
  });

  it("gives up a whole answer instead of a stream that stands still, however slow the client was", async () => {
    const { writer, result, machine, clock } = begun();
    machine.headers(200, { "content-type": "application/json" });
    clock.advance(29_000);
    writer.room = false;
    machine.text("{");
    clock.advance(50_000);
    expect(machine.aborted).toBe(false);
    writer.drain();
    clock.advance(29_999);
    expect(machine.aborted).toBe(false);
    clock.advance(1);
    expect((await result).refusal?.body.error.code).toBe("idle_timeout");
    expect(machine.aborted).toBe(true);
  });

  it.each(["application/json", "text/event-stream"])("passes on no %s that is encoded", async (type) => {
    const { writer, result, machine } = begun();
    machine.headers(200, { "content-type": type, "content-encoding": "gzip" });
    expect((await result).refusal?.body.error.code).toBe("upstream_error");
    expect(machine.aborted).toBe(true);
    expect(writer.started).toBe(false);
  });
});
