import type { EdgeDeps } from "../../deps.ts";
import type { HttpContext } from "../environment.ts";

const NO_STORE = { "cache-control": "no-store" };

/** The process lives and its loop turns; says nothing of anything else. */
export function healthRoute() {
  return (c: HttpContext): Response => c.json({ status: "ok" }, 200, NO_STORE);
}

/**
 * Whether new requests may be sent here: not while draining (503). A store that is away degrades the edge, which goes
 * on serving keys it knows, so that is 200.
 */
export function readyRoute(deps: EdgeDeps) {
  return async (c: HttpContext): Promise<Response> => {
    const draining = deps.draining();
    const [store, models] = await Promise.all([deps.storeState(), deps.fleet.models()]);
    const ready = models.filter(({ readyReplicas }) => readyReplicas > 0).length;
    const status = draining ? "draining" : store === "ok" && ready > 0 ? "ready" : "degraded";
    return c.json({ status, store, models: models.length, models_ready: ready }, draining ? 503 : 200, NO_STORE);
  };
}
