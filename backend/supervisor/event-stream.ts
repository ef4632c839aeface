import { request, type IncomingMessage } from "node:http";
import { ENGINE_EVENTS_PATH, type EngineEvent, engineEventSchema } from "../ports/engine-events.ts";

/** Longest line an engine may send; one beyond it ends the connection. */
const MAX_LINE_LENGTH = 16 * 2 ** 20;

export interface EventStreamHandler {
  onEvent(event: EngineEvent): void;
  /** A line that is not an event; its text is not passed on. */
  onFault(reason: string): void;
  /** Exactly once, whatever happened. */
  onClose(): void;
}

/** Follows an engine's NDJSON of events over its socket. The returned function ends it; `onClose` still comes. */
export function followEvents(socketPath: string, handler: EventStreamHandler): () => void {
  let closed = false;
  const close = (): void => {
    if (closed) return;
    closed = true;
    handler.onClose();
  };
  const exchange = request({ socketPath, path: ENGINE_EVENTS_PATH, agent: false });
  exchange.on("error", close);
  exchange.on("close", close);
  exchange.on("response", (response) => {
    if (response.statusCode !== 200) {
      response.resume();
      exchange.destroy();
      return;
    }
    readLines(response, handler, () => exchange.destroy());
  });
  exchange.end();
  return () => exchange.destroy();
}

function readLines(response: IncomingMessage, handler: EventStreamHandler, abort: () => void): void {
  let rest = "";
  response.setEncoding("utf8");
  response.on("error", () => undefined);
  response.on("data", (text: string) => {
    const lines = (rest + text).split("\n");
    rest = lines.pop() ?? "";
    for (const line of lines) if (line !== "") readEvent(line, handler);
    if (rest.length > MAX_LINE_LENGTH) {
      handler.onFault("a line is too long");
      abort();
    }
  });
}

function readEvent(line: string, handler: EventStreamHandler): void {
  let document: unknown;
  try {
    document = JSON.parse(line);
  } catch {
    handler.onFault("a line is not JSON");
    return;
  }
  const event = engineEventSchema.safeParse(document);
  if (event.success) handler.onEvent(event.data);
  else handler.onFault(`a line is no event: ${event.error.issues[0]?.message ?? ""}`);
}
