import { expect, it } from "vitest";
import { joinBytes } from "../../../shared/join-bytes.ts";

it("joins parts in their order, views of a larger buffer and empty ones included", () => {
  const buffer = Uint8Array.of(9, 1, 2, 9);
  const whole = joinBytes([buffer.subarray(1, 3), new Uint8Array(), Uint8Array.of(3)]);
  expect([...whole]).toEqual([1, 2, 3]);
  expect(joinBytes([])).toHaveLength(0);
});
