import { createServer, type RequestListener, type Server } from "node:http";
import { getRequestListener } from "@hono/node-server";
import { describe, expect, it } from "vitest";
import { ApiError } from "../../shared/errors/api-error.ts";
import { nodeResponseWriter, type CuttableWriter } from "../../edge/node/response-writer.node.ts";
import { streamResponseWriter } from "../../edge/web/response-writer.stream.ts";
import { responseWriterContract, type Serving } from "./response-writer.contract.ts";

async function listening(listener: RequestListener): Promise<Serving> {
  const server: Server = createServer(listener);
  await new Promise<void>((resolve) => server.listen(0, "127.0.0.1", resolve));
  const address = server.address();
  if (address === null || typeof address === "string") throw new Error("a TCP server has an address");
  return {
    url: `http://127.0.0.1:${address.port}`,
    stop: async () => {
      server.closeAllConnections();
      await new Promise<void>((resolve) => server.close(() => resolve()));
    },
  };
}

responseWriterContract({
  name: "Node's response object",
  serve: (run) => listening((_, outgoing) => run(nodeResponseWriter(outgoing))),
});

responseWriterContract({
  name: "a web Response",
  serve: (run) => {
    const listener = getRequestListener(
      (request: Request) => {
        const { writer, response } = streamResponseWriter(request.signal);
        run(writer);
        return response;
      },
      { overrideGlobalObjects: false },
    );
    return listening((incoming, outgoing) => void listener(incoming, outgoing));
  },
});

describe("a whole answer on Node", () => {
  async function answered(write: (writer: CuttableWriter) => void): Promise<Response> {
    const serving = await listening((_, outgoing) => write(nodeResponseWriter(outgoing)));
    try {
      const response = await fetch(serving.url);
      return new Response(await response.arrayBuffer(), response);
    } finally {
      await serving.stop();
    }
  }

  it("tells its length when it ends in the turn in which it began", async () => {
    const response = await answered((writer) => {
      writer.start(200, { "content-type": "application/json" });
      writer.write('{"é":');
      writer.write(new TextEncoder().encode("1}"));
      writer.end();
    });
    expect(response.headers.get("content-length")).toBe("8");
    expect(response.headers.get("transfer-encoding")).toBeNull();
    expect(await response.text()).toBe('{"é":1}');
  });

  it("keeps the length that it was given, and has one of 0 without a body", async () => {
    const given = await answered((writer) => {
      writer.start(200, { "content-length": "2" });
      writer.write("{}");
      writer.end();
    });
    expect(given.headers.get("content-length")).toBe("2");
    const empty = await answered((writer) => {
      writer.start(200, {});
      writer.end();
    });
    expect(empty.headers.get("content-length")).toBe("0");
  });

  it("begins to arrive before it ends when that is later", async () => {
    const ends: (() => void)[] = [];
    const serving = await listening((_, outgoing) => {
      const writer = nodeResponseWriter(outgoing);
      writer.start(200, {});
      writer.write("first ");
      ends.push(() => {
        writer.write("last");
        writer.end();
      });
    });
    // Resolves with the head, which therefore did not wait for the end.
    const response = await fetch(serving.url);
    ends[0]?.();
    expect(await response.text()).toBe("first last");
    await serving.stop();
  });

  it("that was cut before anything of it went out is a refusal, and no half of an answer", async () => {
    const response = await answered((writer) => {
      writer.start(200, {});
      writer.write("half");
      void writer.cut(new ApiError("draining"));
    });
    expect(response.status).toBe(503);
    expect(await response.json()).toMatchObject({ error: { code: "draining" } });
  });
});
