import { ApiError } from "../../../shared/errors/api-error.ts";
import { apiErrorOfZod } from "../../../shared/errors/zod-error.ts";
import type { EngineModel, LoadedSae } from "../engine-model.ts";
import { entryOf, featureQuerySchema, listFeatures } from "./feature-list.ts";
import { rankRequestSchema } from "./feature-rank.ts";
import type { FeatureRanker } from "./feature-ranker.ts";
import { describeSae } from "./sae-description.ts";

export const SAES_PATH = "/v1/saes";
/** Neighbours that are shown with one feature. */
const NEAREST = 10;

/** `/v1/saes`, `/v1/saes/{id}`, `/v1/saes/{id}/features`, `…/features/{index}`, `…/features/rank`; an id may hold slashes. */
const PLACE = /^\/v1\/saes\/(?<id>.+?)(?<features>\/features(?:\/(?<rank>rank)|\/(?<index>\d{1,9}))?)?$/;

export interface SaeCall {
  readonly method: string;
  readonly url: string;
  /** Read only where the route takes one. */
  readonly body: () => Promise<unknown>;
  readonly gone: AbortSignal;
}

export interface SaeRouteDeps {
  readonly model: Pick<EngineModel, "name" | "saes">;
  readonly ranker: Pick<FeatureRanker, "rank">;
}

export function isSaePath(path: string): boolean {
  return path === SAES_PATH || path.startsWith(`${SAES_PATH}/`);
}

/** The methods of a path, for the Allow header. */
export function saeMethod(path: string): "GET" | "POST" {
  return PLACE.exec(path)?.groups?.["rank"] === undefined ? "GET" : "POST";
}

/** The answer's body. Throws an ApiError that names what is at fault. */
export async function answerSaeCall(call: SaeCall, { model, ranker }: SaeRouteDeps): Promise<object> {
  const [path = "", query = ""] = call.url.split("?", 2);
  if (path === SAES_PATH) return { object: "list", data: model.saes.map((sae) => describeSae(sae, model.name)) };
  const { id, features, rank, index } = PLACE.exec(path)?.groups ?? {};
  const sae = saeCalled(model.saes, id ?? "");
  if (features === undefined) return describeSae(sae, model.name);
  if (rank !== undefined) {
    const request = rankRequestSchema.safeParse(await call.body());
    if (!request.success) throw apiErrorOfZod(request.error);
    const ranked = await ranker.rank(sae, request.data, call.gone);
    const data = ranked.map((found) => ({ ...found, ...entryOf(sae, found.index) }));
    return { object: "list", sae_id: sae.id, data };
  }
  if (index !== undefined) {
    const feature = featureOf(sae, Number(index));
    const limit = NEAREST + 1;
    const { entries } = listFeatures(sae, { q: "", nearest: feature, limit, offset: 0 });
    return { ...entryOf(sae, feature), nearest: entries.filter((one) => one.index !== feature).slice(0, NEAREST) };
  }
  const read = featureQuerySchema.safeParse(Object.fromEntries(new URLSearchParams(query)));
  if (!read.success) throw apiErrorOfZod(read.error);
  if (read.data.nearest !== undefined) featureOf(sae, read.data.nearest);
  const { total, entries } = listFeatures(sae, read.data);
  const hasMore = read.data.offset + entries.length < total;
  return { object: "list", sae_id: sae.id, total, has_more: hasMore, data: entries };
}

function saeCalled(saes: readonly LoadedSae[], encoded: string): LoadedSae {
  const found = saes.find((sae) => sae.id === decoded(encoded));
  if (found !== undefined) return found;
  throw new ApiError("sae_not_found", { source: "backend" });
}

function decoded(text: string): string {
  try {
    return decodeURIComponent(text);
  } catch {
    return text;
  }
}

function featureOf(sae: LoadedSae, index: number): number {
  if (index < sae.featureCount) return index;
  throw new ApiError("invalid_feature_index", {
    message: `Feature ${index} is out of range: ${sae.id} has features 0 to ${sae.featureCount - 1}.`,
    param: "index",
  });
}
