import { execFileSync } from "node:child_process";
import { mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { afterAll, beforeAll, describe, expect, it } from "vitest";
import { repositoryFile } from "../support/native-harness.ts";

/** The classes are pure, so they are compiled by themselves and asked line by line; no addon and no model. */
const SOURCES = ["draft_gain.cc", "draft_policy.cc", "prompt_lookup.cc"];

const folder = mkdtempSync(join(tmpdir(), "steerage-drafting-"));
const program = join(folder, "drafting");
beforeAll(() => {
  const native = repositoryFile("backend/native/src");
  const sources = [...SOURCES.map((name) => join(native, name)), repositoryFile("test/native/pure/drafting.cc")];
  execFileSync("c++", ["-std=gnu++17", "-Wall", "-Wextra", "-Werror", "-I", native, "-o", program, ...sources]);
}, 120_000);
afterAll(() => rmSync(folder, { recursive: true }));

const ask = (...commands: string[]): string[] =>
  execFileSync(program, { input: commands.map((command) => `${command}\n`).join(""), encoding: "utf8" })
    .split("\n")
    .slice(0, -1);

const times = (count: number, command: string): string[] => Array.from({ length: count }, () => command);

describe("prompt look-up", () => {
  const lookUp = (most: number, tokens: readonly number[]): number[] =>
    (ask(`lookup ${most} ${tokens.join(" ")}`)[0] ?? "").split(" ").filter(Boolean).map(Number);

  it("drafts what followed the newest tokens when they stood there before", () => {
    expect(lookUp(3, [1, 2, 3, 4, 5, 6, 1, 2, 3])).toEqual([4, 5, 6]);
  });

  it("drafts nothing for a single token that came before, for new tokens, or for no tokens", () => {
    expect(lookUp(3, [1, 2, 3, 9, 2])).toEqual([]);
    expect(lookUp(3, [1, 2, 3, 4, 5])).toEqual([]);
    expect(lookUp(3, [7])).toEqual([]);
    expect(lookUp(3, [])).toEqual([]);
  });

  it("prefers the longest match to the latest, and of equal ones takes the latest", () => {
    expect(lookUp(1, [5, 1, 2, 3, 50, 9, 2, 3, 60, 1, 2, 3])).toEqual([50]);
    expect(lookUp(1, [1, 2, 3, 50, 9, 1, 2, 3, 60, 8, 1, 2, 3])).toEqual([60]);
  });

  it("does not look for more than four tokens: a longer match further back is not worth the way", () => {
    expect(lookUp(1, [0, 1, 2, 3, 4, 70, 9, 1, 2, 3, 4, 80, 0, 1, 2, 3, 4])).toEqual([80]);
  });

  it("goes on with a repetition past the newest token", () => {
    expect(lookUp(5, [7, 8, 7, 8, 7, 8])).toEqual([7, 8, 7, 8, 7]);
    expect(lookUp(4, [3, 3, 3])).toEqual([3, 3, 3, 3]);
  });

  it("reads the first tokens of the sequence too", () => {
    expect(lookUp(2, [1, 2, 9, 1, 2])).toEqual([9, 1]);
  });
});

describe("how much is drafted for one sequence", () => {
  it("begins with all that may be drafted and never asks for more", () => {
    expect(ask("policy 5", "next", ...times(9, "drafted 5 5"), "next").filter((line) => line !== "goes on")).toEqual([
      "ok",
      "5",
      "5",
    ]);
    expect(ask("policy 1", "next")).toEqual(["ok", "1"]);
  });

  it("comes down to about as many tokens as were right, and up again", () => {
    const down = ask("policy 8", ...times(20, "drafted 4 2"), "next").at(-1);
    expect(down).toBe("3");
    const up = ask("policy 8", ...times(20, "drafted 4 2"), ...times(20, "drafted 8 8"), "next").at(-1);
    expect(up).toBe("8");
  });

  it("rests after four drafts that were all wrong, and tries again after 32 steps", () => {
    const answers = ask("policy 5", ...times(4, "drafted 5 0"), ...times(33, "next"));
    expect(answers.slice(1, 5)).toEqual(["goes on", "goes on", "goes on", "rests"]);
    expect(answers.slice(5, 37)).toEqual(times(32, "0"));
    expect(Number(answers[37])).toBeGreaterThan(0);
  });

  it("does not rest while a third of what it drafts is right", () => {
    expect(ask("policy 3", ...times(50, "drafted 3 1")).slice(1)).toEqual(times(50, "goes on"));
  });

  it("rests twice as long each time that nothing changes, up to 512 steps, and anew after a good stretch", () => {
    const rest = (before: string[]): number => {
      const answers = ask("policy 5", ...before, ...times(4, "drafted 5 0"), ...times(600, "next"));
      return answers.slice(before.length + 5).filter((line) => line === "0").length;
    };
    const failing = [...times(4, "drafted 5 0"), ...times(600, "next")];
    expect([0, 1, 2, 3, 4, 5].map((n) => rest(Array.from({ length: n }, () => failing).flat()))).toEqual([
      32, 64, 128, 256, 512, 512,
    ]);
    expect(rest([...failing, ...failing, ...times(10, "drafted 5 5"), ...times(3, "drafted 5 0")])).toBe(32);
  });
});

describe("whether drafts are worth a step", () => {
  const plain = (rows: number, seconds: number): string => `step ${rows} 0 ${rows} ${seconds}`;
  const drafted = (rows: number, tokens: number, seconds: number): string => `step ${rows} 1 ${tokens} ${seconds}`;
  /** What is chosen after four plain and eight drafted steps. */
  const afterTrial = (rows: number, drafts: string, count = 1): string[] =>
    ask("gain", ...times(4, plain(rows, 0.01)), ...times(8, drafts), ...times(count, `favours ${rows}`)).slice(13);

  it("measures plain steps first, then tries drafts", () => {
    expect(ask("favours 1", ...times(4, plain(1, 0.01)), "favours 1")).toEqual(["plain", ...times(4, "ok"), "drafts"]);
  });

  it("goes on with drafts that give more tokens a second, and leaves out those that give fewer", () => {
    expect(afterTrial(1, drafted(1, 3, 0.02))).toEqual(["drafts"]);
    expect(afterTrial(1, drafted(1, 1, 0.011))).toEqual(["plain"]);
    // A full batch at its limit: a third more tokens in twice the time.
    expect(afterTrial(12, drafted(12, 16, 0.02))).toEqual(["plain"]);
  });

  it("looks at the other kind once in 64 steps, and follows when the load has changed", () => {
    const answers = afterTrial(8, drafted(8, 8, 0.02), 128);
    expect(answers.filter((line) => line === "drafts").length).toBe(2);
    expect(answers[63]).toBe("drafts");
    const changed = ask(
      "gain",
      ...times(4, plain(8, 0.01)),
      ...times(8, drafted(8, 8, 0.02)),
      ...times(40, drafted(8, 16, 0.01)),
      "favours 8",
    );
    expect(changed.at(-1)).toBe("drafts");
  });

  it("judges narrow and wide batches apart", () => {
    const trial = [...times(4, plain(1, 0.01)), ...times(8, drafted(1, 3, 0.011))];
    const wide = [...times(4, plain(8, 0.02)), ...times(8, drafted(8, 9, 0.05))];
    expect(ask("gain", ...trial, ...wide, "favours 1", "favours 8", "favours 15", "favours 2").slice(-4)).toEqual([
      "drafts",
      "plain",
      "plain",
      "plain",
    ]);
  });
});
