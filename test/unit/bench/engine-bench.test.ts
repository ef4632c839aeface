import { describe, expect, it } from "vitest";
import { barText, BARS, isMet, rounded, tableOf, type FigureRow } from "../../bench/engine/bars.ts";
import { cpuRatio, mediansOf, rateRatio, type Rounds } from "../../bench/engine/burst.ts";
import { FIGURES, FlagError, readFlags } from "../../bench/engine/flags.ts";
import { alternating, median, slope } from "../../bench/engine/statistics.ts";
import { chatRequest, tokensRequest } from "../../bench/engine/workload.ts";

describe("the engine bench's flags", () => {
  it("take everything on both models unless told otherwise", () => {
    expect(readFlags([], 2)).toEqual({
      json: false,
      only: FIGURES,
      models: ["demo", "85m"],
      streams: [1, 4, 16],
      rounds: 7,
      requests: 10_000,
      threads: 2,
    });
  });

  it("let quick shorten what was not given", () => {
    expect(readFlags(["--quick"], 2)).toMatchObject({ rounds: 3, requests: 3_000 });
    expect(readFlags(["--quick", "--rounds", "9"], 2)).toMatchObject({ rounds: 9, requests: 3_000 });
  });

  it("keep the bench's own order of figures", () => {
    expect(readFlags(["--only", "memory,throughput"], 2)?.only).toEqual(["throughput", "memory"]);
  });

  it("refuse what is impossible and name it", () => {
    expect(() => readFlags(["--rounds", "0"], 2)).toThrow(
      new FlagError("--rounds must be a whole number from 1 to 1000, not '0'"),
    );
    expect(() => readFlags(["--streams", "1,x"], 2)).toThrow(/--streams .* not 'x'/);
    expect(() => readFlags(["--only", "speed"], 2)).toThrow(/--only knows throughput, .* 'speed'/);
    expect(() => readFlags(["--fast"], 2)).toThrow(FlagError);
  });

  it("give nothing to do where help is asked for", () => {
    expect(readFlags(["--help"], 2)).toBeNull();
  });
});

describe("the engine bench's figures", () => {
  it("take the middle of odd and even numbers of values", () => {
    expect(median([3, 1, 2])).toBe(2);
    expect(median([4, 1, 2, 3])).toBe(2.5);
    expect(() => median([])).toThrow("the median of nothing");
  });

  it("take a slope that one outlier does not move", () => {
    const line = [0, 1, 2, 3, 4, 5, 6].map((x) => ({ x, y: 2 * x + 1 }));
    expect(slope(line)).toBe(2);
    expect(slope(line.map((point) => (point.x === 3 ? { x: 3, y: 1_000 } : point)))).toBe(2);
    expect(slope([{ x: 1, y: 1 }])).toBe(0);
  });

  it("turn the order round from round to round", () => {
    expect([0, 1, 2].map((round) => alternating(["a", "b"], round))).toEqual([
      ["a", "b"],
      ["b", "a"],
      ["a", "b"],
    ]);
  });

  it("compare the sides of the same round, so that a slow round counts on both", () => {
    const rate = (tokensPerSecond: number) => ({ tokensPerSecond, cpuUsPerToken: 1 });
    const rounds: Rounds = new Map([
      ["engine", [rate(100), rate(50), rate(100)]],
      ["llama-server", [rate(100), rate(50), rate(400)]],
    ]);
    expect(rateRatio(rounds, "engine", "llama-server")).toBe(1);
    expect(mediansOf(rounds)["llama-server tokens/s"]).toBe(100);
    const busy: Rounds = new Map([
      ["engine", [{ tokensPerSecond: 1, cpuUsPerToken: 50 }]],
      ["llama-server", [{ tokensPerSecond: 9, cpuUsPerToken: 40 }]],
    ]);
    expect(cpuRatio(busy, "engine", "llama-server")).toBe(0.8);
  });

  it("are held to bars from either side", () => {
    expect(isMet({ value: 0.95, bar: BARS.throughput["85m"] })).toBe(true);
    expect(isMet({ value: 0.94, bar: BARS.throughput["85m"] })).toBe(false);
    expect(isMet({ value: 0.0051, bar: BARS.hooksIdle })).toBe(false);
    expect(isMet({ value: 0.0051, bar: null })).toBeNull();
    expect([barText(BARS.firstToken), barText(BARS.distinctSteerings), barText(null)]).toEqual(["≤ 1.1", "≥ 3", "–"]);
  });

  it("stand in a table that says which bars were missed", () => {
    const row: FigureRow = {
      figure: "first token",
      model: "demo",
      measure: "× llama-server",
      value: 1.23456,
      bar: BARS.firstToken,
      of: { "engine ms": 12.3456 },
    };
    expect(tableOf([row]).split("\n")[1]).toMatch(
      /^first token +demo +1\.235 × llama-server +≤ 1\.1 +MISSED +engine ms 12\.35$/,
    );
    expect(rounded(123_456.7)).toBe("123500");
  });
});

describe("the engine bench's work", () => {
  it("never begins two prompts alike, so that nothing is there to be reused", () => {
    const beginnings = Array.from({ length: 500 }, (_, number) =>
      JSON.stringify(chatRequest(number + 1).body).slice(0, 120),
    );
    expect(new Set(beginnings).size).toBe(500);
    const tokens = Array.from({ length: 200 }, (_, number) => JSON.stringify(tokensRequest(number, 512, 1_024).body));
    expect(new Set(tokens.map((text) => text.slice(0, 60))).size).toBe(200);
  });

  it("asks for as many tokens as it says, none of them special", () => {
    const { body } = tokensRequest(7, 512, 1_024);
    expect(body).toMatchObject({ prompt: expect.objectContaining({ length: 512 }) });
    expect(JSON.stringify(body)).not.toMatch(/[[,]10(1[0-9]|2[0-9])[,\]]/);
  });
});
