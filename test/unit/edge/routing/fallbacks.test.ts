import { describe, expect, it } from "vitest";
import { fallbackCycle, fallbackOrders } from "../../../../edge/routing/fallbacks.ts";

const model = (name: string, fallbacks: readonly string[] = [], aliases: readonly string[] = []) => ({
  name,
  aliases,
  fallbacks,
});

describe("fallbacks that go round in a circle (C119)", () => {
  it("are found with the way round, and by alias too", () => {
    expect(fallbackCycle([model("a", ["b"]), model("b", ["c"]), model("c", ["b"])])).toEqual(["b", "c", "b"]);
    expect(fallbackCycle([model("a", ["a"])])).toEqual(["a", "a"]);
    expect(fallbackCycle([model("a", ["bee"]), model("b", ["ay"], ["bee"]), model("c", [], ["ay"])])).toBeNull();
    expect(fallbackCycle([model("a", ["bee"], ["ay"]), model("b", ["ay"], ["bee"])])).toEqual(["a", "b", "a"]);
  });

  it("are not seen where two ways lead to one model, nor in a chain of ten thousand", () => {
    expect(fallbackCycle([model("a", ["b", "c"]), model("b", ["d"]), model("c", ["d"]), model("d")])).toBeNull();
    const chain = Array.from({ length: 10_000 }, (_, at) => model(`m${at}`, [`m${at + 1}`]));
    expect(fallbackCycle(chain)).toBeNull();
    expect(fallbackCycle([...chain, model("m10000", ["m9999"])])).toEqual(["m9999", "m10000", "m9999"]);
  });
});

describe("the order in which models stand in", () => {
  it("is each fallback followed by its own, nobody twice", () => {
    const orders = fallbackOrders([model("a", ["b", "see"]), model("b", ["d", "c"]), model("c", ["e"], ["see"])]);
    expect(orders.get("a")).toEqual(["b", "d", "c", "e"]);
    expect(orders.get("b")).toEqual(["d", "c", "e"]);
    expect(orders.has("d")).toBe(false);
  });

  it("goes down a chain of fifty", () => {
    const chain = Array.from({ length: 50 }, (_, at) => model(`m${at}`, [`m${at + 1}`]));
    expect(fallbackOrders(chain).get("m0")).toHaveLength(50);
  });
});
