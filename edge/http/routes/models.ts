import { ApiError } from "../../../shared/errors/api-error.ts";
import type { ModelEntry } from "../../../shared/openai/models.ts";
import type { EdgeDeps } from "../../deps.ts";
import type { ServedModel } from "../../ports/fleet.ts";
import type { Price } from "../../ports/ledger.ts";
import type { HttpContext } from "../environment.ts";

const NO_STORE = { "cache-control": "no-store" };

export function modelListRoute(deps: EdgeDeps) {
  return async (c: HttpContext): Promise<Response> => {
    const models = await deps.fleet.models();
    const data = models.map((model) => entryOf(model, deps.priceOf(model.id)));
    return c.json({ object: "list", data }, 200, NO_STORE);
  };
}

/** By id or alias; slashes and colons may stand as they are or percent-encoded. */
export function modelRoute(deps: EdgeDeps) {
  return async (c: HttpContext): Promise<Response> => {
    const model = await deps.fleet.resolve(c.req.param("id") ?? "");
    if (model === null) throw new ApiError("model_not_found", { param: "model" });
    return c.json(entryOf(model, deps.priceOf(model.id)), 200, NO_STORE);
  };
}

function entryOf(model: ServedModel, price: Price | null): ModelEntry {
  return {
    id: model.id,
    object: "model",
    created: Math.floor(model.sinceMs / 1_000),
    owned_by: "steerage",
    context_length: model.contextLength,
    max_output: model.maxOutput,
    description: model.description,
    aliases: [...model.aliases],
    capabilities: [...model.capabilities],
    pricing:
      price === null
        ? null
        : {
            prompt_per_1k: price.promptPer1k,
            completion_per_1k: price.completionPer1k,
            cached_per_1k: price.cachedPer1k,
          },
    ...(model.profiles === undefined || model.profiles.length === 0
      ? {}
      : { profiles: model.profiles.map(({ name }) => name) }),
    saes: model.saes.map(({ id, layer, hook_point, d_sae }) => ({
      id,
      layer,
      hook_point,
      features: d_sae,
      loaded: true,
    })),
  };
}
