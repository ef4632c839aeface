import { ServerResponse } from "node:http";
import type { Respond } from "../deps.ts";
import { nodeResponseWriter } from "./response-writer.node.ts";

/** The header by which @hono/node-server knows that the response object was written to directly. */
const ALREADY_SENT = "x-hono-already-sent";

/** Answers are written straight onto Node's response object, without a web stream in between. */
export const respondOnNode: Respond = async ({ bindings }, run) => {
  const outgoing = outgoingOf(bindings);
  await run(nodeResponseWriter(outgoing));
  return new Response(null, { headers: { [ALREADY_SENT]: "true" } });
};

function outgoingOf(bindings: unknown): ServerResponse {
  if (typeof bindings === "object" && bindings !== null && "outgoing" in bindings) {
    const { outgoing } = bindings;
    if (outgoing instanceof ServerResponse) return outgoing;
  }
  throw new Error("this request did not come in through Node's HTTP server");
}
