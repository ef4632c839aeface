import { Hono } from "hono";
import { ApiError } from "../shared/errors/api-error.ts";
import type { EdgeDeps } from "./deps.ts";
import type { HttpEnvironment } from "./http/environment.ts";
import { crossOrigin } from "./http/middleware/cross-origin.ts";
import { rateLimitState } from "./http/middleware/rate-limit-state.ts";
import { refuseWhenDraining } from "./http/middleware/refuse-when-draining.ts";
import { requestIdentity } from "./http/middleware/request-identity.ts";
import { requireKey } from "./http/middleware/require-key.ts";
import { renderError } from "./http/render-error.ts";
import { adminRoutes, agentRoutes, metricsRoutes, publicRoutes, type Route } from "./http/route-table.ts";

/** The public API, the same on every runtime. */
export function createApp(deps: EdgeDeps): Hono<HttpEnvironment> {
  return appOf(deps, publicRoutes(deps), { crossOrigin: true });
}

/** What hosts talk to. */
export function createAgentApp(deps: EdgeDeps): Hono<HttpEnvironment> {
  return appOf(deps, agentRoutes(deps), { crossOrigin: false });
}

/** Health and metrics for operators; hosts report here too where they have no listener of their own. */
export function createAdminApp(deps: EdgeDeps, options: { readonly takesReports: boolean }): Hono<HttpEnvironment> {
  const routes = options.takesReports ? [...adminRoutes(deps), ...agentRoutes(deps)] : adminRoutes(deps);
  return appOf(deps, routes, { crossOrigin: false });
}

/** Metrics and nothing else, so that it can be reachable where the admin listener must not be. */
export function createMetricsApp(deps: EdgeDeps): Hono<HttpEnvironment> {
  return appOf(deps, metricsRoutes(deps), { crossOrigin: false });
}

function appOf(
  deps: EdgeDeps,
  routes: readonly Route[],
  options: { readonly crossOrigin: boolean },
): Hono<HttpEnvironment> {
  const app = new Hono<HttpEnvironment>();
  app.use(requestIdentity(deps));
  if (options.crossOrigin) app.use(crossOrigin());
  for (const route of routes) {
    if (route.access === "key") {
      app.on(route.method, route.path, requireKey(deps));
      app.on(route.method, route.path, rateLimitState(deps, { dispatches: route.dispatches ?? false }));
    }
    if (route.takesWork) app.on(route.method, route.path, refuseWhenDraining(deps));
    app.on(route.method, route.path, route.answer);
  }
  for (const [path, allow] of allowedMethods(routes)) {
    app.all(path, (c) => {
      if (c.req.method === "OPTIONS") return new Response(null, { status: 204, headers: { allow } });
      const response = renderError(c, new ApiError("method_not_allowed"));
      response.headers.set("allow", allow);
      return response;
    });
  }
  app.notFound((c) => renderError(c, new ApiError("route_not_found")));
  app.onError((thrown, c) => renderError(c, thrown));
  return app;
}

/** The Allow header of each path. */
function allowedMethods(routes: readonly Route[]): ReadonlyMap<string, string> {
  const methods = new Map<string, string[]>();
  for (const { path, method } of routes) {
    const known = methods.get(path) ?? [];
    known.push(...(method === "GET" ? ["GET", "HEAD"] : [method]));
    methods.set(path, known);
  }
  return new Map([...methods].map(([path, known]) => [path, [...known, "OPTIONS"].join(", ")]));
}
