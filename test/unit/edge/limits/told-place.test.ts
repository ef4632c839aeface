import { expect, it } from "vitest";
import { isIncluded } from "../../../../edge/limits/told-place.ts";

it.each([
  ["before it", { run: 5, count: 2 }, true],
  ["last before it", { run: 5, count: 3 }, true],
  ["after it", { run: 5, count: 4 }, false],
  ["by a ledger that ended before", { run: 4, count: 9 }, true],
  ["by a ledger that began since", { run: 6, count: 1 }, false],
])("a sum holds what was told %s, or does not: %o", (_what, told, included) => {
  expect(isIncluded(told, { run: 5, count: 3 })).toBe(included);
});
