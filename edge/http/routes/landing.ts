import { INFERENCE_ROUTES } from "../../../shared/openai/request-envelope.ts";
import type { EdgeDeps } from "../../deps.ts";
import type { HttpContext } from "../environment.ts";
import { landingPage } from "../pages/landing.ts";

/** What is served and how to ask: a page for people, JSON for those who ask for it. */
export function landingRoute(deps: EdgeDeps) {
  return async (c: HttpContext): Promise<Response> => {
    const models = await deps.fleet.models();
    const baseUrl = `${new URL(c.req.url).origin}/v1`;
    const headers = { vary: "accept", "cache-control": "no-store" };
    if (prefersJson(c.req.header("accept"))) {
      const served = models.map(({ id, description, saes }) => ({ id, description, saes: saes.map((sae) => sae.id) }));
      return c.json(
        {
          name: "steerage",
          base_url: baseUrl,
          routes: INFERENCE_ROUTES,
          models: served,
        },
        200,
        headers,
      );
    }
    return c.html(landingPage({ baseUrl, models }), 200, {
      ...headers,
      "content-security-policy":
        "default-src 'none'; style-src 'unsafe-inline'; base-uri 'none'; frame-ancestors 'none'",
      "x-content-type-options": "nosniff",
    });
  };
}

/** JSON only where it is named and HTML is not named before it: browsers list HTML first. */
export function prefersJson(accept: string | undefined): boolean {
  const types = (accept ?? "").split(",").map((part) => part.split(";")[0]?.trim().toLowerCase());
  const json = types.indexOf("application/json");
  const html = types.indexOf("text/html");
  return json !== -1 && (html === -1 || json < html);
}
