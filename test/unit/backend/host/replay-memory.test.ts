import { describe, expect, it } from "vitest";
import { ReplayMemory } from "../../../../backend/host/replay-memory.ts";

describe("the memory of token ids", () => {
  it("knows an id until its token expires", () => {
    const memory = new ReplayMemory();
    expect(memory.take("a", 100, 0)).toBe("fresh");
    expect(memory.take("a", 100, 99)).toBe("replayed");
    expect(memory.take("a", 200, 100)).toBe("fresh");
  });

  it("is bounded: it forgets what expired, and lets nothing in rather than forget the rest", () => {
    const memory = new ReplayMemory(2);
    memory.take("a", 100, 0);
    memory.take("b", 200, 0);
    expect(memory.take("c", 300, 50)).toBe("full");
    expect(memory.take("c", 300, 100)).toBe("fresh");
    expect(memory.take("b", 200, 100)).toBe("replayed");
    expect(memory.size).toBe(2);
  });
});
