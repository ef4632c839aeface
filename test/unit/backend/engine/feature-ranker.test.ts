import { describe, expect, it } from "vitest";
import type { LoadedSae } from "../../../../backend/engine/engine-model.ts";
import { FeatureRanker, type RankingCaller } from "../../../../backend/engine/saes/feature-ranker.ts";
import { ScriptedModel } from "../../../support/scripted-native.ts";

const sae: LoadedSae = {
  id: "s",
  digest: "d",
  layer: 1,
  hookPoint: "blocks.1.hook_resid_post",
  featureCount: 2,
  embeddingWidth: 1,
  decoderRows: new Float32Array(2),
  native: {
    featureCount: 2,
    embeddingWidth: 1,
    // Feature 0 is the row itself, feature 1 is always 1.
    encode: (rows) => Float32Array.from([...rows].flatMap((value) => [value, 1])),
    dispose: () => undefined,
  },
  fidelity: null,
  about: { format: "saelens", architecture: "standard", folds: [], folder: "/saes/s" },
  notes: new Map(),
};
const request = { positive: ["bbb"], negative: ["aaa"], limit: 10 };
const callerOf = (gone: AbortSignal, told: number[] = []): RankingCaller => ({
  gone,
  begin: (tokens) => void told.push(tokens),
  progress: (tokens) => void told.push(tokens),
});
const staying = callerOf(new AbortController().signal);

/** A ranker whose rows are the token ids; `open` lets the next text through. */
function setUp() {
  const gates: (() => void)[] = [];
  const log: string[] = [];
  const ranker = new FeatureRanker({
    native: new ScriptedModel({ addsBos: false }),
    contextLength: 16,
    hold: (saes) => {
      log.push(`hold ${[...saes].map(({ id }) => id).join()}`);
      return () => void log.push("let go");
    },
    openReader: () => {
      log.push("open");
      return Promise.resolve({
        rows: async (tokens) => {
          await new Promise<void>((resolve) => gates.push(resolve));
          return Array.from(tokens, (token) => Float32Array.of(token));
        },
        dispose: () => {
          log.push("dispose");
          return Promise.resolve();
        },
      });
    },
  });
  const open = async (count: number) => {
    for (let passed = 0; passed < count;) {
      const gate = gates.shift();
      if (gate === undefined) await new Promise((resolve) => setImmediate(resolve));
      else {
        gate();
        passed += 1;
      }
    }
  };
  return { ranker, log, open };
}

describe("a ranking", () => {
  it("keeps its SAE and its context until it is done, and gives both back", async () => {
    const { ranker, log, open } = setUp();
    const ranking = ranker.rank(sae, request, staying);
    await open(1);
    expect(log).toEqual(["hold s", "open"]);
    await open(1);
    const { features, tokens } = await ranking;
    const [first, second] = features;
    // A byte of both texts is one of its tokens.
    expect(tokens).toBe(6);
    // 'b' is 98, 'a' is 97.
    expect(first).toMatchObject({ index: 0, score: 1 / 98, positive_mean: 98, negative_mean: 97 });
    expect(second).toMatchObject({ index: 1, score: 0 });
    expect(log).toEqual(["hold s", "open", "dispose", "let go"]);
  });

  it("tells how much it will compute, and after each text how much it has, also when it is given up", async () => {
    const { ranker, open } = setUp();
    const whole: number[] = [];
    const ranking = ranker.rank(sae, request, callerOf(new AbortController().signal, whole));
    expect(whole).toEqual([6]);
    await open(2);
    await ranking;
    expect(whole).toEqual([6, 3, 6]);

    const left = new AbortController();
    const some: number[] = [];
    const leaving = ranker.rank(sae, request, callerOf(left.signal, some));
    leaving.catch(() => undefined);
    // The text that is being computed is computed to its end.
    while (some.length < 2) {
      await open(1);
      left.abort();
      await new Promise((resolve) => setImmediate(resolve));
    }
    await expect(leaving).rejects.toMatchObject({ code: "client_closed_request" });
    expect(some).toEqual([6, 3]);
  });

  it("waits for the one before it; too many are refused with a time to come back", async () => {
    const { ranker, log, open } = setUp();
    const rankings = Array.from({ length: 5 }, () => ranker.rank(sae, request, staying));
    await expect(ranker.rank(sae, request, staying)).rejects.toMatchObject({
      code: "engine_busy",
      retryAfterSeconds: 5,
    });
    await open(1);
    expect(log.filter((line) => line === "open")).toHaveLength(1);
    await open(9);
    await Promise.all(rankings);
    expect(log.filter((line) => line === "let go")).toHaveLength(5);
  });

  it("ends early when the caller leaves or the engine goes down, with nothing left behind", async () => {
    const { ranker, log, open } = setUp();
    const left = new AbortController();
    const ranking = ranker.rank(sae, request, callerOf(left.signal));
    ranking.catch(() => undefined);
    left.abort();
    await open(0);
    await expect(ranking).rejects.toMatchObject({ code: "client_closed_request" });
    expect(log.slice(-2)).toEqual(["dispose", "let go"]);
    await ranker.close();
    await expect(ranker.rank(sae, request, staying)).rejects.toMatchObject({ code: "draining" });
  });

  it("is refused for texts that do not fit, by name", async () => {
    const { ranker, log } = setUp();
    const long = { ...request, negative: ["fine", "a".repeat(16)] };
    await expect(ranker.rank(sae, long, staying)).rejects.toMatchObject({
      code: "context_length_exceeded",
      param: "negative[1]",
    });
    expect(log).toEqual([]);
  });
});
