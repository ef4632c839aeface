import { ServerResponse } from "node:http";
import type { ApiError } from "../../shared/errors/api-error.ts";
import { TransientMap } from "../../shared/transient-map.ts";
import type { Respond } from "../deps.ts";
import type { ResponseWriter } from "../ports/response-writer.ts";
import { nodeResponseWriter, type CuttableWriter } from "./response-writer.node.ts";

/** The header by which @hono/node-server knows that the response object was written to directly. */
const ALREADY_SENT = "x-hono-already-sent";

/** The answers of a server: written straight onto Node's response object, without a web stream in between. */
export class NodeAnswers {
  readonly #open = new TransientMap<number, CuttableWriter>();
  #lastId = 0;

  readonly respond: Respond = async ({ bindings }, run) => {
    await this.write(outgoingOf(bindings), run);
    return new Response(null, { headers: { [ALREADY_SENT]: "true" } });
  };

  /** The same for a request that did not come through Hono. */
  async write(outgoing: ServerResponse, run: (writer: ResponseWriter) => Promise<void>): Promise<void> {
    const writer = nodeResponseWriter(outgoing);
    const id = ++this.#lastId;
    this.#open.set(id, writer);
    try {
      await run(writer);
    } finally {
      this.#open.delete(id);
    }
  }

  /** Ends every answer that is not complete with `reason`; resolves when all clients have it or are gone. */
  async cut(reason: ApiError): Promise<void> {
    const told: Promise<void>[] = [];
    for (const writer of this.#open.values()) told.push(writer.cut(reason));
    await Promise.all(told);
  }
}

function outgoingOf(bindings: unknown): ServerResponse {
  if (typeof bindings === "object" && bindings !== null && "outgoing" in bindings) {
    const { outgoing } = bindings;
    if (outgoing instanceof ServerResponse) return outgoing;
  }
  throw new Error("this request did not come in through Node's HTTP server");
}
