import { createServer, type RequestListener, type Server } from "node:http";
import { getRequestListener } from "@hono/node-server";
import { nodeResponseWriter } from "../../edge/node/response-writer.node.ts";
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
