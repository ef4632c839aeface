import type { EdgeDeps } from "../../deps.ts";
import { METRICS_CONTENT_TYPE } from "../../monitoring/registry.ts";
import type { HttpContext } from "../environment.ts";

export function metricsRoute(deps: EdgeDeps) {
  const sources = { ...deps.metricsSources, bands: deps.settings.bands.map(({ name }) => name) };
  return async (c: HttpContext): Promise<Response> =>
    c.body(await deps.metrics.scrape(sources), 200, { "content-type": METRICS_CONTENT_TYPE });
}
