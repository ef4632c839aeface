import type { ResponseWriter } from "../ports/response-writer.ts";

/** A writer that adds headers of the HTTP room to whatever is started through it; the answer's own win. */
export function withHeaders(writer: ResponseWriter, extra: Readonly<Record<string, string>>): ResponseWriter {
  return Object.keys(extra).length === 0 ? writer : headed(writer, extra);
}

function headed(writer: ResponseWriter, extra: Readonly<Record<string, string>>): ResponseWriter {
  return {
    start: (status, headers) => writer.start(status, lowerCased(extra, headers)),
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

/** Nothing here sends a header twice under names of different case. */
function lowerCased(
  extra: Readonly<Record<string, string>>,
  headers: Readonly<Record<string, string>>,
): Record<string, string> {
  const all: Record<string, string> = { ...extra };
  for (const name in headers) {
    const value = headers[name];
    if (value !== undefined) all[name.toLowerCase()] = value;
  }
  return all;
}
