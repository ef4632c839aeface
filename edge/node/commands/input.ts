import { OperatorError } from "../operator-error.ts";

const NAME = /^[A-Za-z0-9][A-Za-z0-9._-]{0,63}$/;
const DATE = /^\d{4}-\d{2}-\d{2}$/;
const INSTANT = /^(\d{4}-\d{2}-\d{2})T\d{2}:\d{2}(?::\d{2}(?:\.\d{1,3})?)?(?:Z|[+-]\d{2}:\d{2})$/;
const USD = /^(\d{1,10})(?:\.(\d{1,9}))?$/;
const NANO_DIGITS = 9;
const MAX_NANO_USD = 9_223_372_036_854_775_807n;

/** Names of projects, accounts and hosts. */
export function readName(text: string, option: string): string {
  if (NAME.test(text)) return text;
  throw new OperatorError(
    `${option}: '${text}' is not a name: up to 64 letters, digits, '.', '_' and '-', beginning with a letter or digit.`,
  );
}

/** A limit per minute; 0 is unlimited. */
export function readRate(text: string, option: string): number {
  const rate = /^\d{1,12}$/.test(text) ? Number(text) : Number.NaN;
  if (Number.isSafeInteger(rate)) return rate;
  throw new OperatorError(`${option}: '${text}' is not a whole number of 0 (unlimited) or more.`);
}

/** Decimal dollars as decimal text of nano-dollars, exactly: no float touches money. */
export function readUsd(text: string, option: string): string {
  const match = USD.exec(text);
  const nanoUsd = match === null ? null : BigInt(`${match[1]}${(match[2] ?? "").padEnd(NANO_DIGITS, "0")}`);
  if (nanoUsd !== null && nanoUsd <= MAX_NANO_USD) return nanoUsd.toString();
  throw new OperatorError(`${option}: '${text}' is not an amount such as 25 or 0.01, with at most nine decimals.`);
}

/** A date (its first moment in UTC) or an instant with its zone, as Unix milliseconds. */
export function readTime(text: string, option: string): number {
  const date = DATE.test(text) ? text : INSTANT.exec(text)?.[1];
  const atMs = date === undefined ? Number.NaN : Date.parse(text);
  // Date.parse takes 30 February for 1 or 2 March.
  const isRealDate = date !== undefined && (new Date(`${date}T00:00:00Z`).toJSON() ?? "").startsWith(date);
  if (isRealDate && Number.isFinite(atMs)) return atMs;
  throw new OperatorError(`${option}: '${text}' is not a time such as 2026-01-31 or 2026-01-31T12:00:00Z.`);
}

/** Whoever pastes a whole key or token where an id or a name belongs must not find it in a log. */
export const shortened = (text: string): string => (text.length > 12 ? `${text.slice(0, 8)}...` : text);

/** A command's result on standard output: one JSON line, or a line for people. */
export function printed<Item>(
  item: Item,
  options: { readonly json?: boolean },
  entry: (item: Item) => object,
  line: (item: Item) => string,
): void {
  printedList([item], options, entry, line);
}

/** The same, a line each. */
export function printedList<Item>(
  items: readonly Item[],
  options: { readonly json?: boolean },
  entry: (item: Item) => object,
  line: (item: Item) => string,
): void {
  const lines = items.map((item) => (options.json === true ? JSON.stringify(entry(item)) : line(item)));
  process.stdout.write(lines.map((text) => `${text}\n`).join(""));
}
