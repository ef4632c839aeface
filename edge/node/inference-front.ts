import type { IncomingMessage, ServerResponse } from "node:http";
import { INFERENCE_ROUTES, type InferenceRoute } from "../../shared/openai/request-envelope.ts";
import { REQUEST_ID_HEADER } from "../../shared/protocol/headers.ts";
import type { EdgeDeps } from "../deps.ts";
import { bearerCredential } from "../http/bearer.ts";
import { withHeaders } from "../http/headed-writer.ts";
import { checkedInference, viaOf } from "../http/inference-call.ts";
import { limitHeaders } from "../http/limit-headers.ts";
import { crossOriginHeaders } from "../http/middleware/cross-origin.ts";
import { checkNotDraining } from "../http/middleware/refuse-when-draining.ts";
import { newRequestIdentity } from "../http/middleware/request-identity.ts";
import { checkMediaType, jsonObjectOf } from "../http/read-json.ts";
import { errorAnswer } from "../http/render-error.ts";
import type { Principal } from "../ports/principal.ts";
import type { NodeAnswers } from "./respond.node.ts";

/**
 * Takes a request off Node's server before Hono sees it. False: not this one, and nothing of it was touched. `refuse`
 * sends a whole answer and sees to what was not read of the body.
 */
export type Front = (
  incoming: IncomingMessage,
  outgoing: ServerResponse,
  refuse: (answer: Response) => void,
) => boolean;

const ROUTES: ReadonlyMap<string | undefined, InferenceRoute> = new Map(
  INFERENCE_ROUTES.map((route) => [route, route]),
);
/** A name or an address, perhaps with a port: whatever else stands there is for the usual way to judge. */
const PLAIN_HOST = /^[a-z0-9.-]+(?::\d{1,5})?$/i;

/**
 * The short way of an inference request that is as clients send them: Hono's and the web's objects for it and for its
 * answer would cost as much as all the rest. Checks, dispatch and refusals are the same.
 */
export function inferenceFront(deps: EdgeDeps, answers: NodeAnswers): Front {
  return (incoming, outgoing, refuse) => {
    const route = ROUTES.get(incoming.url);
    if (route === undefined || !isOrdinary(incoming, deps.settings.maxBodyBytes)) return false;
    void take(deps, answers, { route, incoming, outgoing, refuse });
    return true;
  };
}

interface Taken {
  readonly route: InferenceRoute;
  readonly incoming: IncomingMessage;
  readonly outgoing: ServerResponse;
  readonly refuse: (answer: Response) => void;
}

function isOrdinary({ method, headers }: IncomingMessage, maxBodyBytes: number): boolean {
  const length = headers["content-length"];
  return (
    method === "POST" &&
    length !== undefined &&
    Number(length) <= maxBodyBytes &&
    headers["transfer-encoding"] === undefined &&
    PLAIN_HOST.test(headers.host ?? "")
  );
}

/** Never rejects. */
async function take(deps: EdgeDeps, answers: NodeAnswers, { route, incoming, outgoing, refuse }: Taken): Promise<void> {
  const { rawHeaders } = incoming;
  const header = (name: string): string | undefined => headerIn(rawHeaders, name.toLowerCase());
  const identity = newRequestIdentity(deps, header(REQUEST_ID_HEADER));
  let known: Principal | null = null;
  try {
    // The order in which the app refuses: key, draining, a loop of edges, media type, and only then the body.
    const principal =
      deps.everybody ?? (await deps.authenticator.authenticate(bearerCredential(header("authorization"))));
    known = principal;
    checkNotDraining(deps);
    const via = viaOf(deps, header);
    checkMediaType(header("content-type") ?? null);
    const bytes = await bodyOf(incoming);
    // The client left before its request was whole.
    if (bytes === null) return;
    const body = jsonObjectOf(bytes);
    const { request, headers } = await checkedInference(deps, { route, identity, principal, via, body, header });
    await answers.write(outgoing, (writer) => deps.dispatch.run(request, withHeaders(writer, headers)));
  } catch (thrown) {
    const { requestId } = identity;
    const { status, headers, body } = errorAnswer(thrown, () => deps.logger.with({ request_id: requestId }));
    const limits = known === null ? {} : await limitHeaders(deps, known);
    const more = { ...limits, ...crossOriginHeaders(header("origin")), [REQUEST_ID_HEADER]: requestId };
    refuse(new Response(body, { status, headers: { ...headers, ...more } }));
  }
}

/** The whole body, which is no longer than was announced; null when the connection broke before its end. */
function bodyOf(incoming: IncomingMessage): Promise<Uint8Array | null> {
  return new Promise((resolve) => {
    const parts: Buffer[] = [];
    let isWhole = false;
    incoming.on("data", (part: Buffer) => parts.push(part));
    incoming.on("end", () => {
      const [first] = parts;
      isWhole = true;
      resolve(first !== undefined && parts.length === 1 ? first : Buffer.concat(parts));
    });
    incoming.on("error", () => resolve(null));
    // Node is told of every promise that is resolved twice.
    incoming.on("close", () => {
      if (!isWhole) resolve(null);
    });
    if (incoming.destroyed) resolve(null);
  });
}

/** Node keeps only the first of some headers that are sent twice; who sends two keys must be told so. */
function headerIn(rawHeaders: readonly string[], name: string): string | undefined {
  let found: string | undefined;
  for (let place = 0; place < rawHeaders.length; place += 2) {
    const candidate = rawHeaders[place];
    if (candidate?.length !== name.length || candidate.toLowerCase() !== name) continue;
    const value = rawHeaders[place + 1] ?? "";
    found = found === undefined ? value : `${found}, ${value}`;
  }
  return found;
}
