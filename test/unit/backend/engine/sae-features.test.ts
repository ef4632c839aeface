import type { Ranking } from "../../../../backend/engine/saes/feature-ranker.ts";
import { describe, expect, it } from "vitest";
import { methodOfSaePlace, readSaePath } from "../../../../shared/protocol/sae-paths.ts";
import type { LoadedSae } from "../../../../backend/engine/engine-model.ts";
import { featureQuerySchema, listFeatures } from "../../../../backend/engine/saes/feature-list.ts";
import { FeatureRanking } from "../../../../backend/engine/saes/feature-rank.ts";
import { answerSaeCall } from "../../../../backend/engine/saes/sae-routes.ts";

const note = (label: string | null, density: number | null, maxActivation: number | null, ...topTokens: string[]) => ({
  label,
  density,
  maxActivation,
  topTokens,
});
const sae: LoadedSae = {
  id: "org/one",
  digest: "d",
  layer: 1,
  hookPoint: "blocks.1.hook_resid_post",
  featureCount: 4,
  embeddingWidth: 2,
  decoderRows: Float32Array.of(1, 0, 3, 4, -2, 0, 0, 0),
  native: { featureCount: 4, embeddingWidth: 2, encode: () => new Float32Array(4), dispose: () => undefined },
  fidelity: null,
  about: { format: "llama_scope", architecture: "jumprelu", folds: ["input_scale 2"], folder: "/secret/place" },
  notes: new Map([
    [0, note("Sea and harbour", 0.2, 10, " boat")],
    [1, note("space", 0.1, null, " star", " Harbour")],
    [2, note(null, null, 30)],
  ]),
};
const indices = (query: Record<string, string>) =>
  listFeatures(sae, featureQuerySchema.parse(query)).entries.map(({ index }) => index);
const NOBODY = { gone: new AbortController().signal, begin: () => undefined, progress: () => undefined };
async function call(
  url: string,
  body: unknown = {},
  rank = () => Promise.resolve<Ranking>({ features: [], tokens: 7 }),
) {
  const [path = "", query = ""] = url.split("?", 2);
  const place = readSaePath(path);
  if (place === null) throw new Error(`${path} is no place`);
  return answerSaeCall(
    { place, query, body: () => Promise.resolve(body), ...NOBODY },
    { model: { name: "m", saes: [sae] }, ranker: { rank } },
  );
}

describe("the features of an SAE", () => {
  it("are found by every word of a question, in label or top tokens, in any case", () => {
    expect(indices({ q: "harbour" })).toEqual([0, 1]);
    expect(indices({ q: "HARBOUR sea" })).toEqual([0]);
    expect(indices({ q: "nothing" })).toEqual([]);
    expect(indices({})).toEqual([0, 1, 2, 3]);
  });

  it("are sorted either way, what is not known last, and paged", () => {
    expect(indices({ sort: "density" })).toEqual([1, 0, 2, 3]);
    expect(indices({ sort: "-density" })).toEqual([0, 1, 2, 3]);
    expect(indices({ sort: "-max_activation" })).toEqual([2, 0, 1, 3]);
    expect(indices({ sort: "label" })).toEqual([0, 1, 2, 3]);
    expect(indices({ sort: "-index", limit: "2", offset: "1" })).toEqual([2, 1]);
  });

  it("are ranked by the cosine of decoder rows, whose length is told", () => {
    const { entries } = listFeatures(sae, featureQuerySchema.parse({ nearest: "0" }));
    expect(entries.map(({ index, cosine }) => [index, cosine])).toEqual([
      [0, 1],
      [1, 0.6],
      [3, 0],
      [2, -1],
    ]);
    expect(entries.map(({ decoder_norm: norm }) => norm)).toEqual([1, 5, 0, 2]);
  });

  it.each(["limit=0", "limit=1001", "limit=x", "sort=size", "nearest=-1", "offset=1.5", "colour=red"])(
    "are not listed for the question '%s'",
    async (query) => {
      await expect(call(`/v1/saes/org/one/features?${query}`)).rejects.toMatchObject({ status: 400 });
    },
  );
});

describe("the routes of SAEs", () => {
  it("list and describe them, without the place where they lie", async () => {
    const described = {
      id: "org/one",
      object: "sae",
      model: "m",
      layer: 1,
      d_in: 2,
      features: 4,
      labelled: 2,
      format: "llama_scope",
      decoder_rows: "folded",
      folds: ["input_scale 2"],
      fidelity: "unmeasured",
    };
    expect(await call("/v1/saes")).toMatchObject({ object: "list", data: [described] });
    for (const id of ["org/one", "org%2Fone"]) expect(await call(`/v1/saes/${id}`)).toMatchObject(described);
    expect(JSON.stringify(await call("/v1/saes"))).not.toContain("secret");
  });

  it("show one feature with its neighbours", async () => {
    expect(await call("/v1/saes/org/one/features/1")).toMatchObject({
      index: 1,
      label: "space",
      nearest: [{ index: 0, cosine: 0.6 }, { index: 3 }, { index: 2 }],
    });
  });

  it("refuse what does not exist", async () => {
    await expect(call("/v1/saes/two")).rejects.toMatchObject({ code: "sae_not_found", status: 404 });
    await expect(call("/v1/saes/%E0%A4%A")).rejects.toMatchObject({ code: "sae_not_found" });
    await expect(call("/v1/saes/org/one/features/4")).rejects.toMatchObject({ code: "invalid_feature_index" });
    await expect(call("/v1/saes/org/one/features?nearest=9")).rejects.toMatchObject({ code: "invalid_feature_index" });
  });

  it("take a ranking as POST, and refuse one that names no texts", async () => {
    const method = (path: string) => methodOfSaePlace(readSaePath(path) ?? { kind: "list" });
    expect(method("/v1/saes/org/one/features/rank")).toBe("POST");
    expect(method("/v1/saes/org/one/features")).toBe("GET");
    expect(readSaePath("/v1/models")).toBeNull();
    const rank = "/v1/saes/org/one/features/rank";
    expect(await call(rank, { positive: ["a"], negative: ["b"] })).toEqual({
      object: "list",
      sae_id: "org/one",
      data: [],
      usage: { prompt_tokens: 7, total_tokens: 7 },
    });
    await expect(call(rank, { positive: [], negative: ["b"] })).rejects.toMatchObject({ param: "positive" });
    await expect(call(rank, { positive: ["a"] })).rejects.toMatchObject({ param: "negative" });
    await expect(call(rank, { positive: ["a"], negative: ["b"], more: 1 })).rejects.toMatchObject({ status: 400 });
  });
});

describe("a ranking", () => {
  const rows = (...values: number[][]) => values.map((row) => Float32Array.from(row));

  it("is the difference of text means as a share of the largest activation", () => {
    const ranking = new FeatureRanking(4);
    ranking.add("positive", rows([4, 0, 2, 0], [0, 0, 2, 0]));
    ranking.add("positive", rows([8, 0, 2, 0]));
    ranking.add("negative", rows([0, 1, 2, 0], [0, 3, 2, 0], [0, 2, 2, 0]));
    expect(ranking.ranked(10)).toEqual(
      [
        // Means 2 and 8, so 5 of at most 8.
        { index: 0, score: 0.625, positive_mean: 5, negative_mean: 0, positive_share: 1, negative_share: 0 },
        // Mean 2 of at most 3, for the other side.
        { index: 1, score: -2 / 3, positive_mean: 0, negative_mean: 2, positive_share: 0, negative_share: 1 },
        { index: 2, score: 0, positive_mean: 2, negative_mean: 2, positive_share: 1, negative_share: 1 },
      ].toSorted((a, b) => Math.abs(b.score) - Math.abs(a.score)),
    );
    expect(ranking.ranked(1)).toHaveLength(1);
  });
});
