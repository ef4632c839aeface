import { describe, expect, it } from "vitest";
import { nameIsFree, placementAfter, type EdgeLease } from "../../../../edge/membership/edge-lease.ts";

const NOW = 1_000_000;
const lease = (more: Partial<EdgeLease> = {}): EdgeLease => ({
  name: "a",
  home: "home-a",
  run: "run-1",
  expiresAtMs: NOW + 1,
  ...more,
});

describe("the name of an edge", () => {
  it("is taken while another data directory's edge lives, to the end of its lease", () => {
    expect(nameIsFree(lease(), "home-b", NOW)).toBe(false);
    expect(nameIsFree(lease(), "home-b", NOW + 1)).toBe(true);
    expect(nameIsFree(null, "home-b", NOW)).toBe(true);
  });

  it("is its own at once after a restart in the same data directory", () => {
    expect(nameIsFree(lease(), "home-a", NOW)).toBe(true);
  });
});

describe("the placement lease", () => {
  const held = { holder: "a", holderRun: "run-1", number: 4 };
  const other = { name: "b", run: "run-9" };

  it("stays with its holder, under the same number, as long as that one lives", () => {
    expect(placementAfter(held, lease(), other, NOW)).toBe(held);
    expect(placementAfter(held, lease(), { name: "a", run: "run-1" }, NOW)).toBe(held);
  });

  it("goes to another when its holder's lease has ended or it has left, under a higher number", () => {
    const taken = { holder: "b", holderRun: "run-9", number: 5 };
    expect(placementAfter(held, lease(), other, NOW + 1)).toEqual(taken);
    expect(placementAfter(held, null, other, NOW)).toEqual(taken);
    expect(placementAfter(null, null, other, NOW)).toEqual({ ...taken, number: 1 });
  });

  it("has a higher number for a holder that was started again", () => {
    const again = { name: "a", run: "run-2" };
    expect(placementAfter(held, lease({ run: "run-2" }), again, NOW)).toEqual({
      holder: "a",
      holderRun: "run-2",
      number: 5,
    });
  });
});
