import { describe, expect, it } from "vitest";
import { readName, readRate, readTime, readUsd } from "../../../../edge/node/commands/input.ts";
import { OperatorError } from "../../../../edge/node/operator-error.ts";

describe("what an operator types", () => {
  it.each([
    ["0", "0"],
    ["25", "25000000000"],
    ["0.01", "10000000"],
    ["0.1", "100000000"],
    ["1.000000001", "1000000001"],
    ["007.50", "7500000000"],
    ["9223372036.854775807", "9223372036854775807"],
  ])("%s dollars are %s nano-dollars", (text, nanoUsd) => {
    expect(readUsd(text, "--budget-usd")).toBe(nanoUsd);
  });

  it.each(["", "-1", "1e3", ".5", "5.", "1,50", "0.0000000001", "9223372036.854775808", "NaN", " 1", "$1"])(
    "'%s' is no amount",
    (text) => {
      expect(() => readUsd(text, "--budget-usd")).toThrow(OperatorError);
    },
  );

  it.each([
    ["2026-01-31", "2026-01-31T00:00:00.000Z"],
    ["2026-01-31T12:00Z", "2026-01-31T12:00:00.000Z"],
    ["2026-01-31T00:30:00+05:30", "2026-01-30T19:00:00.000Z"],
    ["2024-02-29T23:59:59.999Z", "2024-02-29T23:59:59.999Z"],
  ])("%s is %s", (text, utc) => {
    expect(new Date(readTime(text, "--from")).toISOString()).toBe(utc);
  });

  it.each([
    "",
    "yesterday",
    "2026-02-30",
    "2026-02-29T00:00:00Z",
    "2026-13-01",
    "2026-01-31T12:00:00",
    "2026",
    "1767225600",
  ])("'%s' is no time", (text) => {
    expect(() => readTime(text, "--from")).toThrow(OperatorError);
  });

  it("a rate is a whole number from 0", () => {
    expect(readRate("0", "--rpm")).toBe(0);
    expect(readRate("600", "--rpm")).toBe(600);
    for (const text of ["-1", "1.5", "many", "", "1e3"]) expect(() => readRate(text, "--rpm")).toThrow(OperatorError);
  });

  it("a name has no path, no space and no option in it", () => {
    expect(readName("gpu-1.example", "name")).toBe("gpu-1.example");
    for (const text of ["", "a b", "../a", "-x", "a".repeat(65)])
      expect(() => readName(text, "name")).toThrow(OperatorError);
  });
});
