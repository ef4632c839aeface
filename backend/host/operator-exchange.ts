import { request as httpRequest, type IncomingHttpHeaders, type ServerResponse } from "node:http";
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

const PASSED_HEADERS = ["content-type", "content-length", "cache-control", "allow", "retry-after", ERROR_SOURCE_HEADER];

/**
 * Puts an operator's question to an engine and passes its answer on as it is, with back-pressure. An operator who
 * leaves ends the question. Resolves when the answer is out; rejects when the engine cannot be reached.
 */
export function passOn(question: OperatorQuestion, response: ServerResponse): Promise<void> {
  const { socketPath, method, path, headers, body } = question;
  return new Promise((resolve, reject) => {
    const asked = httpRequest(
      { socketPath, method, path, headers: { ...headers, "content-length": String(body.length) } },
      (answer) => {
        response.writeHead(answer.statusCode ?? 502, passedHeaders(answer.headers));
        answer.pipe(response);
        answer.once("error", () => response.destroy());
      },
    );
    asked.once("error", (cause) => {
      if (response.headersSent) response.destroy();
      else reject(new ApiError("no_replica_available", { source: "backend", cause }));
    });
    response.once("close", () => {
      asked.destroy();
      resolve();
    });
    asked.end(body);
  });
}

function passedHeaders(headers: IncomingHttpHeaders): Record<string, string> {
  return Object.fromEntries(
    PASSED_HEADERS.flatMap((name) => {
      const value = headers[name];
      return typeof value === "string" ? [[name, value]] : [];
    }),
  );
}
