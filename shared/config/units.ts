import { z } from "zod";

const DURATION = /^(\d+(?:\.\d+)?)(ms|s|m|h|d)$/;
const DURATION_MS: Readonly<Record<string, number>> = { ms: 1, s: 1_000, m: 60_000, h: 3_600_000, d: 86_400_000 };
const SIZE = /^(\d+(?:\.\d+)?)(B|KiB|MiB|GiB|TiB)$/;
const SIZE_BYTES: Readonly<Record<string, number>> = { B: 1, KiB: 2 ** 10, MiB: 2 ** 20, GiB: 2 ** 30, TiB: 2 ** 40 };

/** `200ms`, `10s`, `5m`, `24h`, `7d` as milliseconds; a bare 0 too, which means unlimited or off. Null if neither. */
export function parseDurationMs(text: string): number | null {
  if (text === "0") return 0;
  const match = DURATION.exec(text);
  const unit = match === null ? undefined : DURATION_MS[match[2] ?? ""];
  return match === null || unit === undefined ? null : Math.round(Number(match[1]) * unit);
}

/** `512B`, `4MiB` as bytes, or a bare whole number of bytes. Null if neither. */
export function parseSizeBytes(text: string): number | null {
  if (/^\d+$/.test(text)) return Number(text);
  const match = SIZE.exec(text);
  const unit = match === null ? undefined : SIZE_BYTES[match[2] ?? ""];
  return match === null || unit === undefined ? null : Math.round(Number(match[1]) * unit);
}

/** A duration in a configuration file; read as milliseconds. The default is written as a person would write it. */
export function duration(defaultText: string) {
  return z
    .union([z.string(), z.literal(0)])
    .default(defaultText)
    .transform(readDuration)
    .meta({ kind: "duration" });
}

/** The same where another setting decides when it is not given. */
export function optionalDuration() {
  return z
    .union([z.string(), z.literal(0)])
    .transform(readDuration)
    .meta({ kind: "duration" })
    .optional();
}

/** A size in a configuration file; read as bytes. */
export function size(defaultText: string) {
  return z
    .union([z.string(), z.int().min(0)])
    .default(defaultText)
    .transform(readSize)
    .meta({ kind: "size" });
}

/** The same where another setting decides when it is not given. */
export function optionalSize() {
  return z
    .union([z.string(), z.int().min(0)])
    .transform(readSize)
    .meta({ kind: "size" })
    .optional();
}

function readDuration(text: string | number, context: z.core.$RefinementCtx): number {
  const ms = parseDurationMs(String(text));
  if (ms !== null) return ms;
  context.addIssue({ code: "custom", message: `'${text}' is not a duration such as 200ms, 10s, 5m or 24h` });
  return z.NEVER;
}

function readSize(text: string | number, context: z.core.$RefinementCtx): number {
  const bytes = parseSizeBytes(String(text));
  if (bytes !== null) return bytes;
  context.addIssue({ code: "custom", message: `'${text}' is not a size such as 4MiB or 512KiB` });
  return z.NEVER;
}
