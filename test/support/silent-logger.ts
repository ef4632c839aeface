import { createLogger, type Logger } from "../../shared/logging/logger.ts";

/** A logger that keeps its lines for the test to read. */
export function keptLogger(): { readonly logger: Logger; readonly lines: string[] } {
  const lines: string[] = [];
  const clock = { nowMs: () => 0 };
  return { lines, logger: createLogger({ level: "debug", format: "json", clock, write: (line) => lines.push(line) }) };
}
