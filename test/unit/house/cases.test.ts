import { describe, expect, it } from "vitest";
import { textOf } from "../../support/source-tree.ts";

const TABLE = "test/faults/CASES.md";
/** The cases that there are between C001 and C031, and between C075 and C120. */
const CASES =
  "1 2 3 4 5 6 7 8 10 13 14 16 17 18 19 21 23 25 27 28 29 30 75 76 79 80 81 83 84 85 87 88 89 90 91 93 94 95 97 99 101 102 105 106 108 109 111 112 114 115 117 118 119 120"
    .split(" ")
    .map((number) => `C${number.padStart(3, "0")}`);

const rows = textOf(TABLE)
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
        .filter((file) => file !== "")
        .map((file) => file.replaceAll("`", "")),
    };
  });

describe("the table of fault cases", () => {
  it("names every case once", () => {
    expect(rows.map(({ id }) => id).toSorted()).toEqual(CASES);
  });

  it("says where each is tested, and there it stands in a title", () => {
    const wrong = rows.flatMap(({ id, files }) =>
      files.filter((file) => !new RegExp(`"[^"\\n]*${id}`).test(textOf(file))).map((file) => `${id} ${file}`),
    );
    expect(wrong).toEqual([]);
    expect(rows.filter(({ files }) => files.length === 0).map(({ id }) => id)).toEqual(["C084", "C085"]);
  });
});
