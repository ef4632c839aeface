import { createServer, type IncomingHttpHeaders, type Server, type ServerResponse } from "node:http";

export interface SeenRequest {
  readonly path: string;
  readonly headers: IncomingHttpHeaders;
  readonly body: string;
  /** Resolves when the connection of this request is gone before its end. */
  readonly aborted: Promise<void>;
}

export type Script = (request: SeenRequest, response: ServerResponse) => unknown;

/** An OpenAI-compatible server on loopback that does what a test says and remembers what it was asked. */
export class ScriptedEndpoint {
  readonly url: string;
  readonly seen: SeenRequest[] = [];
  /** Replace it in a test; by default a whole or streamed answer of five tokens. */
  script: Script = answerOfFive;
  /** Its metrics page; null: it has none. */
  metrics: string | null = null;
  readonly #server: Server;

  private constructor(url: string, server: Server) {
    this.url = url;
    this.#server = server;
  }

  static async start(): Promise<ScriptedEndpoint> {
    let endpoint: ScriptedEndpoint | null = null;
    const server = createServer((incoming, outgoing) => {
      let body = "";
      incoming.setEncoding("utf8").on("data", (text: string) => (body += text));
      const aborted = new Promise<void>((resolve) => {
        outgoing.once("close", () => {
          if (!outgoing.writableFinished) resolve();
        });
      });
      incoming.on("end", () => {
        // The edge asks every endpoint for its load.
        if (incoming.url === "/metrics") {
          const page = endpoint?.metrics ?? null;
          outgoing.writeHead(page === null ? 404 : 200).end(page ?? "");
          return;
        }
        const request = { path: incoming.url ?? "", headers: incoming.headers, body, aborted };
        endpoint?.seen.push(request);
        void endpoint?.script(request, outgoing);
      });
    });
    await new Promise<void>((resolve) => server.listen(0, "127.0.0.1", resolve));
    const address = server.address();
    if (address === null || typeof address === "string") throw new Error("a TCP server has an address");
    endpoint = new ScriptedEndpoint(`http://127.0.0.1:${address.port}`, server);
    return endpoint;
  }

  openConnections(): Promise<number> {
    return new Promise((resolve, reject) => {
      this.#server.getConnections((error, count) => (error === null ? resolve(count) : reject(error)));
    });
  }

  async stop(): Promise<void> {
    this.#server.closeAllConnections();
    await new Promise((resolve) => this.#server.close(resolve));
  }
}

export const FIVE_WORDS = ["one ", "two ", "three ", "four ", "five"];

const usage = { prompt_tokens: 7, completion_tokens: 5, total_tokens: 12 };
const base = { id: "chatcmpl-1", created: 1, model: "m" };

/** One chunk of a chat stream as text on the wire. */
export function chunkText(delta: object, finishReason: string | null = null): string {
  const choices = [{ index: 0, delta, finish_reason: finishReason }];
  return `data: ${JSON.stringify({ ...base, object: "chat.completion.chunk", choices })}\n\n`;
}

/** What follows the last word: finish, usage, end mark. */
export function endOfStream(): string {
  const last = { ...base, object: "chat.completion.chunk", choices: [], usage };
  return `${chunkText({}, "stop")}data: ${JSON.stringify(last)}\n\ndata: [DONE]\n\n`;
}

/** A stream of just these bytes, each part written on its own. */
export function streamOf(parts: readonly (string | Uint8Array)[], head: Readonly<Record<string, string>> = {}): Script {
  return async (_request, response) => {
    response.writeHead(200, { "content-type": "text/event-stream", ...head });
    for (const part of parts) {
      await new Promise<void>((resolve) => response.write(part, () => resolve()));
      await new Promise((resolve) => setImmediate(resolve));
    }
    response.end();
  };
}

export function answerOfFive(request: SeenRequest, response: ServerResponse): void {
  if (/"stream"\s*:\s*true/.test(request.body)) {
    response.writeHead(200, { "content-type": "text/event-stream" });
    for (const word of FIVE_WORDS) response.write(chunkText({ content: word }));
    response.end(endOfStream());
    return;
  }
  const message = { role: "assistant", content: FIVE_WORDS.join(""), refusal: null };
  const choices = [{ index: 0, message, logprobs: null, finish_reason: "stop" }];
  const whole = { ...base, object: "chat.completion", choices, usage };
  response.writeHead(200, { "content-type": "application/json" }).end(JSON.stringify(whole));
}
