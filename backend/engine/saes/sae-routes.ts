import { ApiError } from "../../../shared/errors/api-error.ts";
import { apiErrorOfZod } from "../../../shared/errors/zod-error.ts";
import type { SaePlace } from "../../../shared/protocol/sae-paths.ts";
import type { EngineModel, LoadedSae } from "../engine-model.ts";
import { entryOf, featureQuerySchema, listFeatures } from "./feature-list.ts";
import { rankRequestSchema } from "./feature-rank.ts";
import type { FeatureRanker, RankingCaller } from "./feature-ranker.ts";
import { describeSae } from "./sae-description.ts";

/** Neighbours that are shown with one feature. */
const NEAREST = 10;

export interface SaeCall extends RankingCaller {
  readonly place: SaePlace;
  /** What stands behind the question mark. */
  readonly query: string;
  /** Read only where the route takes one. */
  readonly body: () => Promise<unknown>;
}

export interface SaeRouteDeps {
  readonly model: Pick<EngineModel, "name" | "saes">;
  readonly ranker: Pick<FeatureRanker, "rank">;
}

/** The answer's body. Throws an ApiError that names what is at fault. */
export async function answerSaeCall(call: SaeCall, { model, ranker }: SaeRouteDeps): Promise<object> {
  const { place } = call;
  if (place.kind === "list") return { object: "list", data: model.saes.map((sae) => describeSae(sae, model.name)) };
  if (place.kind === "rank") return await rankFeatures(place.id, call, { model, ranker });
  const sae = attached(model.saes, place.id);
  if (place.kind === "feature") return oneFeature(sae, place.index);
  if (place.kind === "features") return listedFeatures(sae, call.query);
  return describeSae(sae, model.name);
}

function attached(saes: readonly LoadedSae[], wanted: string): LoadedSae {
  const sae = saes.find(({ id }) => id === wanted);
  if (sae === undefined) throw new ApiError("sae_not_found", { source: "backend" });
  return sae;
}

async function rankFeatures(id: string, call: SaeCall, { model, ranker }: SaeRouteDeps): Promise<object> {
  const request = rankRequestSchema.safeParse(await call.body());
  // Found only now: from here to the ranker's hold on it nothing can detach it.
  const sae = attached(model.saes, id);
  if (!request.success) throw apiErrorOfZod(request.error);
  const { features, tokens } = await ranker.rank(sae, request.data, call);
  return {
    object: "list",
    sae_id: sae.id,
    data: features.map((found) => ({ ...found, ...entryOf(sae, found.index) })),
    usage: { prompt_tokens: tokens, total_tokens: tokens },
  };
}

function oneFeature(sae: LoadedSae, index: number): object {
  checkIndex(sae, index);
  const { entries } = listFeatures(sae, { q: "", nearest: index, limit: NEAREST + 1, offset: 0 });
  return { ...entryOf(sae, index), nearest: entries.filter((one) => one.index !== index).slice(0, NEAREST) };
}

function listedFeatures(sae: LoadedSae, query: string): object {
  const read = featureQuerySchema.safeParse(Object.fromEntries(new URLSearchParams(query)));
  if (!read.success) throw apiErrorOfZod(read.error);
  if (read.data.nearest !== undefined) checkIndex(sae, read.data.nearest);
  const { total, entries } = listFeatures(sae, read.data);
  const hasMore = read.data.offset + entries.length < total;
  return { object: "list", sae_id: sae.id, total, has_more: hasMore, data: entries };
}

function checkIndex(sae: LoadedSae, index: number): void {
  if (index < sae.featureCount) return;
  throw new ApiError("invalid_feature_index", {
    message: `Feature ${index} is out of range: ${sae.id} has features 0 to ${sae.featureCount - 1}.`,
    param: "index",
  });
}
