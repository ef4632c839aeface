import {
  request as httpRequest,
  type ClientRequest,
  type IncomingHttpHeaders,
  type IncomingMessage,
  type ServerResponse,
} from "node:http";
import { ApiError } from "../../shared/errors/api-error.ts";
import { ERROR_SOURCE_HEADER } from "../../shared/protocol/headers.ts";

export interface OperatorQuestion {
  readonly socketPath: string;
  readonly method: string;
  /** With its query. */
  readonly path: string;
  readonly headers: Readonly<Record<string, string>>;
  readonly body: Buffer;
}

const PASSED_HEADERS = [
  "content-type",
  "content-length",
  "cache-control",
  "x-accel-buffering",
  "allow",
  "retry-after",
  ERROR_SOURCE_HEADER,
];

/**
 * Puts an operator's question to an engine and passes its answer on as it is, with back-pressure. An operator who
 * leaves ends the question. Resolves when the answer is out; rejects when the engine cannot be reached.
 */
export function passOn(question: OperatorQuestion, response: ServerResponse): Promise<void> {
  return new Promise((resolve, reject) => {
    const asked = ask(question, (answer) => {
      response.writeHead(answer.statusCode ?? 502, passedHeaders(answer.headers));
      answer.pipe(response);
      answer.once("error", () => response.destroy());
    });
    asked.once("error", (cause) => {
      if (response.headersSent) response.destroy();
      else reject(unreached(cause));
    });
    response.once("close", () => {
      asked.destroy();
      resolve();
    });
  });
}

export interface EngineAnswer {
  readonly status: number;
  readonly headers: Readonly<Record<string, string>>;
  readonly body: Buffer;
}

/** The same for a question whose answer the host reads itself: it is heard to its end, whoever leaves. */
export function askEngine(question: OperatorQuestion): Promise<EngineAnswer> {
  return new Promise((resolve, reject) => {
    const fail = (cause: unknown): void => reject(unreached(cause));
    const asked = ask(question, (answer) => {
      const chunks: Buffer[] = [];
      answer.on("data", (chunk: Buffer) => chunks.push(chunk));
      answer.once("end", () => {
        const { "content-length": _, ...headers } = passedHeaders(answer.headers);
        resolve({ status: answer.statusCode ?? 502, headers, body: Buffer.concat(chunks) });
      });
      answer.once("error", fail);
    });
    asked.once("error", fail);
  });
}

function ask(question: OperatorQuestion, onAnswer: (answer: IncomingMessage) => void): ClientRequest {
  const { socketPath, method, path, headers, body } = question;
  const asked = httpRequest(
    { socketPath, method, path, headers: { ...headers, "content-length": String(body.length) }, agent: false },
    onAnswer,
  );
  asked.end(body);
  return asked;
}

const unreached = (cause: unknown): ApiError => new ApiError("no_replica_available", { source: "backend", cause });

function passedHeaders(headers: IncomingHttpHeaders): Record<string, string> {
  return Object.fromEntries(
    PASSED_HEADERS.flatMap((name) => {
      const value = headers[name];
      return typeof value === "string" ? [[name, value]] : [];
    }),
  );
}
