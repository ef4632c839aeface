import type { InferenceRoute } from "../../../shared/openai/request-envelope.ts";
import type { EdgeDeps } from "../../deps.ts";
import type { HttpContext } from "../environment.ts";
import { withHeaders } from "../headed-writer.ts";
import { checkedInference, viaOf } from "../inference-call.ts";
import { readJsonObject } from "../read-json.ts";

/** One of the three routes that reach an engine: every check that needs no machine, then dispatch. */
export function inferenceRoute(deps: EdgeDeps, route: InferenceRoute) {
  return async (c: HttpContext): Promise<Response> => {
    const header = (name: string): string | undefined => c.req.header(name);
    const via = viaOf(deps, header);
    const body = await readJsonObject(c.req.raw, deps.settings.maxBodyBytes);
    const { request, headers } = await checkedInference(deps, {
      route,
      identity: {
        requestId: c.get("requestId"),
        clientRequestId: c.get("clientRequestId"),
        receivedAtMs: c.get("receivedAtMs"),
      },
      principal: c.get("principal"),
      via,
      body,
      header,
    });
    return deps.respond({ request: c.req.raw, bindings: c.env }, (writer) =>
      deps.dispatch.run(request, withHeaders(writer, headers)),
    );
  };
}
