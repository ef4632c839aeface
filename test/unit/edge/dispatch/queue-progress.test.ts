import { describe, expect, it } from "vitest";
import { commentOf } from "../../../../edge/dispatch/queue-progress.ts";
import { manualBench, replica } from "../../../support/dispatch-bench.ts";
import { delta, finish, usageChunk } from "../../../support/scripted-exchange.ts";

const settled = () => new Promise((resolve) => setImmediate(resolve));

describe("a stream that waits in the queue", () => {
  async function waiting(progress: boolean) {
    const bench = await manualBench({ replicas: [replica("gpu/r1", { slots: 1 })] });
    const first = bench.ask({ stream: true }, { requestId: "r1" });
    const running = await bench.exchange(0);
    bench.ask({ stream: true }, { requestId: "r2" });
    await settled();
    const { writer, done } = bench.ask({ stream: true }, { requestId: "r3", progress });
    await settled();
    const pass = async (ms: number): Promise<void> => {
      bench.clock.advance(ms);
      await settled();
    };
    return { ...bench, first, running, writer, done, pass };
  }

  it("is told its place where it asked for that, and nothing more once it is served", async () => {
    const { writer, done, pass, running, exchange, clock } = await waiting(true);
    await pass(2_000);
    expect(writer.text).toBe(": queued place=2\n\n");
    running.stream().data(delta("a"), finish("stop"), usageChunk(3, 1), "[DONE]").end();
    const second = await exchange(1);
    await pass(2_000);
    expect(writer.text).toMatch(/^: queued place=2\n\n: queued place=1( estimate=\d+s)?\n\n$/);
    second.stream().data(delta("b"), finish("stop"), usageChunk(3, 1), "[DONE]").end();
    const third = await exchange(2);
    await pass(4_000);
    third.stream().data(delta("c"), finish("stop"), usageChunk(3, 1), "[DONE]").end();
    await done;
    expect(writer.text.match(/queued/g)).toHaveLength(2);
    expect(writer.text.endsWith("data: [DONE]\n\n")).toBe(true);
    expect(clock.pendingTimers).toBeLessThan(3);
  });

  it("gets bare comments otherwise, and only after a long silence", async () => {
    const { writer, pass } = await waiting(false);
    await pass(14_000);
    expect(writer.text).toBe("");
    await pass(1_000);
    expect(writer.text).toBe(": \n\n");
  });

  it("leaves no timer when its client leaves", async () => {
    const { writer, done, pass, clock } = await waiting(true);
    await pass(2_000);
    const before = clock.pendingTimers;
    writer.leave();
    await done;
    expect(clock.pendingTimers).toBeLessThan(before);
    await pass(10_000);
    expect(writer.text).toBe(": queued place=2\n\n");
  });

  it("is told whole seconds", () => {
    expect(commentOf({ place: 3, waitMs: 11_200 })).toBe("queued place=3 estimate=12s");
    expect(commentOf({ place: 1, waitMs: 0 })).toBe("queued place=1 estimate=1s");
  });
});
