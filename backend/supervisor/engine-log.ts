import { createInterface } from "node:readline";
import type { Readable } from "node:stream";
import { z } from "zod";
import { type LogFields, type Logger, LOG_LEVELS } from "../../shared/logging/logger.ts";

const lineSchema = z.looseObject({ at: z.string().optional(), level: z.enum(LOG_LEVELS), message: z.string() });
const fieldSchema = z.union([z.string(), z.number(), z.boolean(), z.null()]);

/** How a library or the runtime says why a process is about to end; never text of a caller. */
const LAST_WORDS = /^(?:GGML_|ggml_|CUDA error|terminate called|node: |FATAL ERROR|\S+\.(?:c|cc|cpp|cu|h):\d+: )/;

/**
 * Carries an engine's lines into the host's log: JSON lines keep level and fields. llama.cpp prints a grammar that does
 * not parse, and with it a caller's schema, straight to stderr: of such lines only the length is told.
 */
export function relayEngineLog(stream: Readable, logger: Logger): void {
  const lines = createInterface({ input: stream, crlfDelay: Number.POSITIVE_INFINITY });
  lines.on("line", (line) => {
    if (line.trim() !== "") logLine(line, logger);
  });
  lines.on("error", () => undefined);
}

function logLine(line: string, logger: Logger): void {
  const parsed = lineSchema.safeParse(parseJson(line));
  if (!parsed.success) {
    if (LAST_WORDS.test(line)) logger.warn(line.slice(0, 2_000));
    else logger.debug("a library wrote a line that is not told", { length: line.length });
    return;
  }
  const { at: _at, level, message, ...rest } = parsed.data;
  const fields: Record<string, LogFields[string]> = {};
  for (const [name, value] of Object.entries(rest)) {
    const field = fieldSchema.safeParse(value);
    if (field.success) fields[name] = field.data;
  }
  logger[level](message, fields);
}

function parseJson(line: string): unknown {
  if (!line.startsWith("{")) return null;
  try {
    return JSON.parse(line);
  } catch {
    return null;
  }
}
