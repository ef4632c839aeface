import { describe, expect, it } from "vitest";
import { Slots } from "../../../../backend/sim/slots.ts";

const never = new AbortController().signal;
const take = async (slots: Slots, signal = never): Promise<() => void> => {
  const slot = await slots.take(signal);
  if (typeof slot === "string") throw new Error(slot);
  return slot;
};

describe("slots", () => {
  it("are given first come, first served", async () => {
    const slots = new Slots(1, 5);
    const first = await take(slots);
    const order: number[] = [];
    const second = take(slots).then((release) => {
      order.push(2);
      return release;
    });
    const third = take(slots).then((release) => {
      order.push(3);
      return release;
    });
    expect([slots.taken, slots.waiting]).toEqual([1, 2]);
    first();
    (await second)();
    (await third)();
    expect([order, slots.taken, slots.waiting]).toEqual([[2, 3], 0, 0]);
  });

  it("are given back once, however often that is said", async () => {
    const slots = new Slots(2, 0);
    const first = await take(slots);
    await take(slots);
    first();
    first();
    expect(slots.taken).toBe(1);
  });

  it("refuse when the queue is full", async () => {
    const slots = new Slots(1, 1);
    await take(slots);
    void slots.take(never);
    expect(await slots.take(never)).toBe("full");
  });

  it("let a waiting request leave without costing anybody a place", async () => {
    const slots = new Slots(1, 2);
    const first = await take(slots);
    const leaver = new AbortController();
    const leaving = slots.take(leaver.signal);
    const staying = take(slots);
    leaver.abort();
    expect(await leaving).toBe("cancelled");
    expect(slots.waiting).toBe(1);
    first();
    await staying;
    expect(slots.taken).toBe(1);
    expect(await slots.take(leaver.signal)).toBe("cancelled");
  });
});
