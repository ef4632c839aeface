import { ApiError } from "../../../shared/errors/api-error.ts";
import { methodOfSaePlace, readSaePath } from "../../../shared/protocol/sae-paths.ts";
import type { EdgeDeps } from "../../deps.ts";
import type { ServedModel } from "../../ports/fleet.ts";
import { bandOf } from "../band.ts";
import type { HttpContext } from "../environment.ts";
import { readJsonObject } from "../read-json.ts";

const NO_STORE = { "cache-control": "no-store" };

/** Every SAE of every model that is ready; an SAE that two models hold stands there twice. */
export function saeListRoute(deps: EdgeDeps) {
  return async (c: HttpContext): Promise<Response> => {
    const models = await deps.fleet.models();
    const data = models.flatMap((model) =>
      model.saes.map(({ id, digest, layer, hook_point, d_sae, fidelity }) => ({
        id,
        object: "sae",
        model: model.id,
        layer,
        hook_point,
        features: d_sae,
        digest,
        fidelity: fidelity ?? "unmeasured",
      })),
    );
    return c.json({ object: "list", data }, 200, NO_STORE);
  };
}

/**
 * One SAE, its features, or a ranking of them: answered by a replica that holds it. `?model=` says which model is
 * meant where several hold an SAE of that name.
 */
export function saeRoute(deps: EdgeDeps) {
  return async (c: HttpContext): Promise<Response> => {
    const { pathname, searchParams } = new URL(c.req.url);
    const place = readSaePath(pathname);
    if (place === null || place.kind === "list") throw new ApiError("route_not_found");
    const method = methodOfSaePlace(place);
    if (c.req.method !== method) {
      c.header("allow", method);
      throw new ApiError("method_not_allowed");
    }
    const model = holding(await deps.fleet.models(), place.id, searchParams.get("model"));
    searchParams.delete("model");
    const query = searchParams.toString();
    const body = method === "POST" ? await readJsonObject(c.req.raw, deps.settings.maxBodyBytes) : null;
    const principal = c.get("principal");
    const {
      status,
      headers,
      body: bytes,
    } = await deps.callSae({
      requestId: c.get("requestId"),
      clientRequestId: c.get("clientRequestId"),
      principal,
      band: bandOf(c.req.header(deps.settings.bandHeader), principal.highestBand, deps.settings),
      model,
      saeId: place.id,
      method,
      path: query === "" ? pathname : `${pathname}?${query}`,
      bodyText: body?.text ?? "",
      receivedAtMs: c.get("receivedAtMs"),
      gone: c.req.raw.signal,
    });
    return new Response(bytes, { status, headers: { ...headers, ...NO_STORE } });
  };
}

function holding(models: readonly ServedModel[], saeId: string, wanted: string | null): ServedModel {
  const found = models
    .filter(({ saes }) => saes.some(({ id }) => id === saeId))
    .filter(({ id, aliases }) => wanted === null || id === wanted || aliases.includes(wanted));
  const [only, ...others] = found;
  if (only === undefined) throw new ApiError("sae_not_found");
  if (others.length === 0) return only;
  throw new ApiError("invalid_value", {
    message: `Several models hold an SAE of that name: ${found.map(({ id }) => id).join(", ")}. Say which with '?model='.`,
    param: "model",
  });
}
