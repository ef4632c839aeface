import { INFERENCE_ROUTES } from "../../shared/openai/request-envelope.ts";
import type { EdgeDeps } from "../deps.ts";
import type { HttpContext } from "./environment.ts";
import { dashboardRoute, dashboardScriptRoute, dashboardStyleRoute } from "./routes/dashboard.ts";
import { healthRoute, readyRoute } from "./routes/health.ts";
import { inferenceRoute } from "./routes/inference.ts";
import { keyRoute } from "./routes/key.ts";
import { landingRoute } from "./routes/landing.ts";
import { metricsRoute } from "./routes/metrics.ts";
import { modelListRoute, modelRoute } from "./routes/models.ts";
import { REPORTS_PATH, reportsRoute } from "./routes/reports.ts";
import { requestRoute } from "./routes/requests.ts";
import { saeListRoute, saeRoute } from "./routes/saes.ts";

export interface Route {
  readonly method: "GET" | "POST";
  /** In Hono's pattern language. */
  readonly path: string;
  /** `key`: an API key, checked before the route sees the request. `self`: the route checks a credential of its own. */
  readonly access: "open" | "key" | "self";
  /** Takes work that ends later, and so is refused while draining. */
  readonly takesWork: boolean;
  /** Answers through dispatch, which tells the rate limits itself. */
  readonly dispatches?: boolean;
  readonly answer: (c: HttpContext) => Response | Promise<Response>;
}

/** The public listener. */
export function publicRoutes(deps: EdgeDeps): readonly Route[] {
  return [
    { method: "GET", path: "/", access: "open", takesWork: false, answer: landingRoute(deps) },
    { method: "GET", path: "/health", access: "open", takesWork: false, answer: healthRoute() },
    { method: "GET", path: "/ready", access: "open", takesWork: false, answer: readyRoute(deps) },
    { method: "GET", path: "/v1/models", access: "key", takesWork: false, answer: modelListRoute(deps) },
    { method: "GET", path: "/v1/models/:id{.+}", access: "key", takesWork: false, answer: modelRoute(deps) },
    { method: "GET", path: "/v1/key", access: "key", takesWork: false, answer: keyRoute(deps) },
    { method: "GET", path: "/requests/:id", access: "key", takesWork: false, answer: requestRoute(deps) },
    { method: "GET", path: "/v1/saes", access: "key", takesWork: false, answer: saeListRoute(deps) },
    { method: "GET", path: "/v1/saes/:place{.+}", access: "key", takesWork: true, answer: saeRoute(deps) },
    { method: "POST", path: "/v1/saes/:place{.+}", access: "key", takesWork: true, answer: saeRoute(deps) },
    ...INFERENCE_ROUTES.map((path): Route => ({
      method: "POST",
      path,
      access: "key",
      takesWork: true,
      dispatches: true,
      answer: inferenceRoute(deps, path),
    })),
  ];
}

/** Where hosts report; a listener of its own, or part of the admin listener. */
export function agentRoutes(deps: EdgeDeps): readonly Route[] {
  return [{ method: "POST", path: REPORTS_PATH, access: "self", takesWork: false, answer: reportsRoute(deps) }];
}

/** For operators and their tools, on loopback by default: it shows the names of all projects. */
export function adminRoutes(deps: EdgeDeps): readonly Route[] {
  return [
    { method: "GET", path: "/", access: "open", takesWork: false, answer: dashboardRoute(deps) },
    { method: "GET", path: "/dashboard.css", access: "open", takesWork: false, answer: dashboardStyleRoute() },
    { method: "GET", path: "/dashboard.js", access: "open", takesWork: false, answer: dashboardScriptRoute() },
    { method: "GET", path: "/health", access: "open", takesWork: false, answer: healthRoute() },
    { method: "GET", path: "/ready", access: "open", takesWork: false, answer: readyRoute(deps) },
    ...metricsRoutes(deps),
  ];
}

export function metricsRoutes(deps: EdgeDeps): readonly Route[] {
  return [{ method: "GET", path: "/metrics", access: "open", takesWork: false, answer: metricsRoute(deps) }];
}
