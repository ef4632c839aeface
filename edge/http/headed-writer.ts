import type { ResponseWriter } from "../ports/response-writer.ts";

/** A writer that adds headers of the HTTP room to whatever is started through it; the answer's own win. */
export function withHeaders(writer: ResponseWriter, extra: Readonly<Record<string, string>>): ResponseWriter {
  return {
    start: (status, headers) => writer.start(status, { ...extra, ...lowerCased(headers) }),
    get started() {
      return writer.started;
    },
    write: (chunk) => writer.write(chunk),
    end: () => writer.end(),
    destroy: () => writer.destroy(),
    onDrain: (listener) => writer.onDrain(listener),
    onClosed: (listener) => writer.onClosed(listener),
    get closed() {
      return writer.closed;
    },
  };
}

function lowerCased(headers: Readonly<Record<string, string>>): Record<string, string> {
  return Object.fromEntries(Object.entries(headers).map(([name, value]) => [name.toLowerCase(), value]));
}
