import type { Clock } from "../time/clock.ts";

export const LOG_LEVELS = ["debug", "info", "warn", "error"] as const;
export type LogLevel = (typeof LOG_LEVELS)[number];
export type LogFormat = "console" | "json";
export type LogFields = Readonly<Record<string, string | number | boolean | null | undefined>>;

/** One line an event. Never give it bodies, keys, tokens or headers: only ids, counts, codes and durations. */
export interface Logger {
  debug(message: string, fields?: LogFields): void;
  info(message: string, fields?: LogFields): void;
  warn(message: string, fields?: LogFields): void;
  error(message: string, fields?: LogFields, thrown?: unknown): void;
  /** The same log with fields that stand on every line. */
  with(fields: LogFields): Logger;
}

export interface LoggerOptions {
  /** Read at every line, so it may change. */
  readonly level: LogLevel;
  readonly format: LogFormat;
  readonly clock: Pick<Clock, "nowMs">;
  /** Takes one line without its end. */
  readonly write: (line: string) => void;
  readonly fields?: LogFields;
}

/** A logger whose only effect is `write`; a thrown error is logged by name, message and stack. */
export function createLogger(options: LoggerOptions): Logger {
  return loggerWith(options, options.fields ?? {});
}

function loggerWith(options: LoggerOptions, base: LogFields): Logger {
  const emit = (level: LogLevel, message: string, fields: LogFields | undefined, thrown?: unknown): void => {
    if (LOG_LEVELS.indexOf(level) < LOG_LEVELS.indexOf(options.level)) return;
    const all: Record<string, unknown> = { ...base, ...fields };
    if (thrown !== undefined) all["error"] = describeThrown(thrown);
    const at = new Date(options.clock.nowMs()).toISOString();
    options.write(
      options.format === "json"
        ? JSON.stringify({ at, level, message, ...all })
        : `${at} ${level.toUpperCase().padEnd(5)} ${oneLine(message)}${consoleFields(all)}`,
    );
  };
  return {
    debug: (message, fields) => emit("debug", message, fields),
    info: (message, fields) => emit("info", message, fields),
    warn: (message, fields) => emit("warn", message, fields),
    error: (message, fields, thrown) => emit("error", message, fields, thrown),
    with: (fields) => loggerWith(options, { ...base, ...fields }),
  };
}

function describeThrown(thrown: unknown): string {
  if (!(thrown instanceof Error)) return String(thrown);
  const cause = thrown.cause === undefined ? "" : `; caused by ${describeThrown(thrown.cause)}`;
  return `${thrown.stack ?? `${thrown.name}: ${thrown.message}`}${cause}`;
}

function consoleFields(fields: Record<string, unknown>): string {
  let text = "";
  for (const [name, value] of Object.entries(fields)) {
    if (value === undefined) continue;
    const shown = typeof value === "string" ? value : JSON.stringify(value);
    text += ` ${name}=${/[\s"=]/.test(shown) ? JSON.stringify(shown) : shown}`;
  }
  return text;
}

const oneLine = (text: string): string => text.replace(/[\r\n]+/g, " ");
