import { createServer, type IncomingMessage, type Server, type ServerResponse } from "node:http";
import type { Socket } from "node:net";

/** One request as the scripted server saw it, with what the script needs to answer it. */
export interface ScriptedExchange {
  readonly method: string;
  readonly path: string;
  readonly headers: IncomingMessage["headers"];
  readonly body: string;
  readonly response: ServerResponse;
  /** Resolves when the connection or the answer is over, with whether the client left before the answer's end. */
  readonly closed: Promise<{ readonly early: boolean }>;
}

export type Script = (exchange: ScriptedExchange) => void | Promise<void>;

/** A loopback HTTP server that plays a backend: it notes what it receives and does what its script says. */
export class ScriptedUpstream {
  readonly url: string;
  readonly exchanges: ScriptedExchange[] = [];
  readonly #server: Server;
  readonly #sockets = new Set<Socket>();

  private constructor(server: Server, url: string) {
    this.#server = server;
    this.url = url;
  }

  static async start(script: Script): Promise<ScriptedUpstream> {
    const server = createServer();
    await new Promise<void>((resolve) => server.listen(0, "127.0.0.1", resolve));
    const address = server.address();
    if (address === null || typeof address === "string") throw new Error("a TCP server has an address");
    const upstream = new ScriptedUpstream(server, `http://127.0.0.1:${address.port}`);
    server.on("connection", (socket) => {
      upstream.#sockets.add(socket);
      socket.once("close", () => upstream.#sockets.delete(socket));
    });
    server.on("request", (incoming, response) => {
      void upstream.#take(incoming, response, script);
    });
    return upstream;
  }

  get openConnections(): number {
    return this.#sockets.size;
  }

  /** The exchange at `place`, as soon as it is there. */
  async exchange(place: number): Promise<ScriptedExchange> {
    return waitFor(() => this.exchanges[place]);
  }

  async stop(): Promise<void> {
    for (const socket of this.#sockets) socket.destroy();
    await new Promise<void>((resolve) => {
      this.#server.close(() => resolve());
    });
  }

  async #take(incoming: IncomingMessage, response: ServerResponse, script: Script): Promise<void> {
    const closed = new Promise<{ early: boolean }>((resolve) => {
      response.once("close", () => resolve({ early: !response.writableFinished }));
    });
    response.on("error", () => undefined);
    let body = "";
    incoming.setEncoding("utf8");
    try {
      for await (const part of incoming) body += String(part);
    } catch {
      return;
    }
    const { method = "", url: path = "", headers } = incoming;
    const exchange = { method, path, headers, body, response, closed };
    this.exchanges.push(exchange);
    await script(exchange);
  }
}

/** Looks again every few milliseconds until there is something; fails after ten seconds. */
export async function waitFor<T>(
  look: () => T | undefined | null | false | Promise<T | undefined | null | false>,
): Promise<T> {
  const until = Date.now() + 10_000;
  for (;;) {
    const found = await look();
    if (found !== undefined && found !== null && found !== false) return found;
    if (Date.now() > until) throw new Error("waited ten seconds in vain");
    await new Promise((resolve) => setTimeout(resolve, 5));
  }
}

/** Resets the connection, as a killed process does. */
export function cut(exchange: ScriptedExchange): void {
  exchange.response.socket?.destroy();
}

/** An origin on loopback at which nobody listens. */
export async function refusedOrigin(): Promise<string> {
  const upstream = await ScriptedUpstream.start(() => undefined);
  await upstream.stop();
  return upstream.url;
}
