import { describe, expect, it } from "vitest";
import { textOf } from "../../support/source-tree.ts";

/** A table of cases, the numbers that there are in its range, and those that it may leave without a test. */
interface CaseTable {
  readonly file: string;
  readonly numbers: string;
  readonly untested: readonly string[];
}
const TABLES: readonly CaseTable[] = [
  {
    file: "test/faults/CASES.md",
    numbers:
      "1 2 3 4 5 6 7 8 10 13 14 16 17 18 19 21 23 25 27 28 29 30 75 76 79 80 81 83 84 85 87 88 89 90 91 93 94 95 97 99 101 102 105 106 108 109 111 112 114 115 117 118 119 120",
    untested: ["C084", "C085"],
  },
  {
    file: "test/regressions/CASES.md",
    numbers:
      "32 33 34 35 36 37 38 40 41 42 43 45 46 47 49 50 51 52 54 55 56 58 60 61 62 63 64 65 67 68 69 70 71 72 73 74 125 126 128",
    untested: [],
  },
];

const rowsOf = (file: string) =>
  textOf(file)
    .split("\n")
    .filter((line) => line.startsWith("| C"))
    .map((line) => {
      const [id = "", ...cells] = line
        .split("|")
        .slice(1, -1)
        .map((cell) => cell.trim());
      return {
        id,
        files: (cells[1] ?? "")
          .split(", ")
          .filter((cell) => cell !== "")
          .map((cell) => cell.replaceAll("`", "")),
      };
    });

describe.each(TABLES)("the table $file", ({ file, numbers, untested }) => {
  const rows = rowsOf(file);

  it("names every case once", () => {
    const cases = numbers.split(" ").map((number) => `C${number.padStart(3, "0")}`);
    expect(rows.map(({ id }) => id).toSorted()).toEqual(cases);
  });

  it("says where each is tested, and there it stands in a title", () => {
    const wrong = rows.flatMap(({ id, files }) =>
      files.filter((one) => !new RegExp(`"[^"\\n]*${id}`).test(textOf(one))).map((one) => `${id} ${one}`),
    );
    expect(wrong).toEqual([]);
    expect(rows.filter(({ files }) => files.length === 0).map(({ id }) => id)).toEqual(untested);
  });
});
