import type { EdgeDeps } from "../../deps.ts";
import type { HttpContext } from "../environment.ts";
import { DASHBOARD_SCRIPT, DASHBOARD_STYLE } from "../pages/dashboard-assets.ts";
import { dashboardPage } from "../pages/dashboard.ts";

/** Decisions on one page. */
const MOST_SHOWN = 50;

const HEADERS = {
  "cache-control": "no-store",
  "content-security-policy":
    "default-src 'none'; style-src 'self'; script-src 'self'; connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'",
  "x-content-type-options": "nosniff",
  "referrer-policy": "no-referrer",
  "cross-origin-resource-policy": "same-origin",
};

/** What is decided now and why, for operators. */
export function dashboardRoute(deps: EdgeDeps) {
  return async (c: HttpContext): Promise<Response> => {
    const [pools, hosts, store] = await Promise.all([
      deps.metricsSources.coordinator.stats(),
      deps.fleet.hosts(),
      deps.storeState(),
    ]);
    const page = dashboardPage({
      edge: deps.settings.edge,
      nowMs: deps.clock.nowMs(),
      state: deps.draining() ? "draining" : store,
      pools,
      hosts,
      decisions: deps.latestDecisions?.(MOST_SHOWN) ?? [],
    });
    return c.html(page, 200, HEADERS);
  };
}

export function dashboardStyleRoute() {
  return (c: HttpContext): Response =>
    c.body(DASHBOARD_STYLE, 200, { ...HEADERS, "content-type": "text/css; charset=utf-8" });
}

export function dashboardScriptRoute() {
  return (c: HttpContext): Response =>
    c.body(DASHBOARD_SCRIPT, 200, { ...HEADERS, "content-type": "text/javascript; charset=utf-8" });
}
