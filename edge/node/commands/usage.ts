import { Readable } from "node:stream";
import { pipeline } from "node:stream/promises";
import { Option, type Command } from "commander";
import type { TimeRange, UsageRow, UsageStore } from "../../ports/usage-store.ts";
import { exportedRows } from "../../usage/export.ts";
import { csvHeader, csvLine, jsonLine } from "../../usage/export-format.ts";
import {
  addExported,
  differencesOf,
  exportDifferences,
  proofSides,
  requestIdsOf,
  type ProofDifference,
  type ProofSides,
} from "../../usage/proof.ts";
import type { LedgerBook } from "../../usage/ledger-book.ts";
import { hourOf } from "../../usage/request-account.ts";
import { nodeClock } from "../clock.node.ts";
import { readJournal, readJournalRows, withExistingStore } from "../command-store.ts";
import { loadConfig, withConfigOptions, type ConfigOptions } from "../load-config.ts";
import { OperatorError } from "../operator-error.ts";
import { readTime } from "./input.ts";

interface RangeOptions extends ConfigOptions {
  readonly from?: string;
  readonly to?: string;
}

const HOUR_MS = 3_600_000;
/** A report or a correction between two reads of a running edge can make them differ: then both are read again. */
const CHECK_TRIES = 4;
const CHECK_PAUSE_MS = 500;

/** `steerage usage export|check|rollup`. */
export function registerUsage(program: Command): void {
  const usage = program.command("usage").description("export what is billed, and prove its sums");
  withRange(withConfigOptions(usage.command("export")))
    .description("the billing export on standard output, ordered by time, journal included")
    .addOption(new Option("--format <format>", "form of the lines").choices(["jsonl", "csv"]).default("jsonl"))
    .action(exportUsage);
  withRange(withConfigOptions(usage.command("check")))
    .description("prove, per hour, that machines, attempts, rows and export agree; exits 1 when they do not")
    .action(checkUsage);
  withRange(withConfigOptions(usage.command("rollup")))
    .description("derive the hourly sums, which budgets are counted from, again from the rows of usage")
    .action(rollUpUsage);
}

function withRange(command: Command): Command {
  return command
    .option("--from <time>", "first moment, a date or an instant with its zone (default: everything)")
    .option("--to <time>", "first moment that is not included any more");
}

async function exportUsage(options: RangeOptions & { readonly format: "jsonl" | "csv" }): Promise<void> {
  const range = readRange(options);
  const loaded = await loadConfig(options);
  const format = options.format === "csv" ? csvLine : jsonLine;
  await withExistingStore(loaded, async (store) => {
    // The journal first: a row that moves to the database meanwhile is then found in both, not in neither.
    const journal = await readJournalRows(loaded.dataDirectory);
    const rows = exportedRows(store, journal, { ...range, settledUpToMs: null });
    await writeLines(linesOf(rows, format, options.format === "csv" ? csvHeader() : null));
  });
}

async function* linesOf(
  rows: AsyncIterable<UsageRow>,
  format: (row: UsageRow) => string,
  header: string | null,
): AsyncGenerator<string> {
  if (header !== null) yield `${header}\n`;
  for await (const row of rows) yield `${format(row)}\n`;
}

async function writeLines(lines: AsyncIterable<string>): Promise<void> {
  try {
    await pipeline(Readable.from(lines), process.stdout, { end: false });
  } catch (thrown) {
    // The reader has seen enough, as `head` does.
    if (!(thrown instanceof Error && "code" in thrown && thrown.code === "EPIPE")) throw thrown;
  }
}

interface Checked {
  readonly sides: ProofSides;
  readonly differences: readonly ProofDifference[];
  readonly billedWithoutUsage: number;
  /** Requests whose rows the database does not take, with its reason. */
  readonly refused: readonly { readonly requestId: string; readonly reason: string }[];
}

async function checkUsage(options: RangeOptions): Promise<void> {
  const range = readHours(options);
  const loaded = await loadConfig(options);
  const checked = await withExistingStore(loaded, async (store) => {
    let result = await checkOnce(store, loaded.dataDirectory, range);
    for (let attempt = 1; attempt < CHECK_TRIES && !isEqual(result); attempt += 1) {
      await new Promise((resolve) => setTimeout(resolve, CHECK_PAUSE_MS));
      result = await checkOnce(store, loaded.dataDirectory, range);
    }
    return result;
  });
  if (isEqual(checked)) {
    process.stdout.write(`${summaryOf(checked.sides)}\n`);
    return;
  }
  for (const difference of checked.differences) process.stdout.write(`${differenceLine(difference)}\n`);
  if (checked.billedWithoutUsage > 0) {
    process.stdout.write(`${checked.billedWithoutUsage} billed attempts have no row of usage\n`);
  }
  for (const { requestId, reason } of checked.refused)
    process.stdout.write(`${requestId}  the database refuses its rows, which are only in the journal: ${reason}\n`);
  const isRefused = checked.differences.length === 0 && checked.billedWithoutUsage === 0;
  throw new OperatorError(isRefused ? "the database refuses rows." : "the ledger's sums differ.", 1);
}

async function checkOnce(
  store: UsageStore,
  dataDirectory: string,
  period: { readonly fromMs: number | null; readonly toMs: number | null },
): Promise<Checked> {
  const range = { ...period, settledUpToMs: nodeClock.nowMs() };
  const book = await readJournal(dataDirectory);
  const journal = book.rows();
  const snapshot = await store.proofSnapshot({ ...range, requestIds: requestIdsOf(journal) });
  const sides = proofSides(snapshot, journal, range);
  const lines: Parameters<typeof addExported>[0] = new Map();
  for await (const row of exportedRows(store, journal, range)) addExported(lines, row);
  return {
    sides,
    differences: [...differencesOf(sides), ...exportDifferences(sides, lines)],
    billedWithoutUsage: snapshot.billedWithoutUsage,
    refused: await stillRefused(store, book),
  };
}

const isEqual = ({ differences, billedWithoutUsage, refused }: Checked): boolean =>
  differences.length === 0 && billedWithoutUsage === 0 && refused.length === 0;

/** What the journal calls refused may have been taken since. */
async function stillRefused(store: Pick<UsageStore, "requests">, book: LedgerBook): Promise<Checked["refused"]> {
  const refused = book.refused();
  if (refused.length === 0) return [];
  const { usageRows } = await store.requests(refused.map(({ requestId }) => requestId));
  const taken = new Set(usageRows.map(({ requestId }) => requestId));
  return refused.filter(({ requestId }) => !taken.has(requestId));
}

function summaryOf({ usage, attempts }: ProofSides): string {
  let [requests, tokens, nanoUsd, computed] = [0n, 0n, 0n, 0n];
  for (const sums of usage.values()) {
    requests += sums.rows;
    tokens += sums.promptTokens + sums.completionTokens;
    nanoUsd += sums.costNanoUsd;
  }
  for (const sums of attempts.values()) computed += sums.promptTokens + sums.completionTokens;
  return (
    `The ledger agrees in ${usage.size} ${usage.size === 1 ? "hour" : "hours"}: ${requests} requests, ${tokens} tokens billed, ` +
    `${nanoUsd} nano-dollars; ${computed} tokens reported by hosts.`
  );
}

function differenceLine({ sum, hourMs, where, column, left, right }: ProofDifference): string {
  const hour = new Date(hourMs).toISOString();
  return `${hour}  ${sum}${where === "" ? "" : ` (${where})`}: ${column} ${left} and ${right} differ by ${left - right}`;
}

async function rollUpUsage(options: RangeOptions): Promise<void> {
  const range = readHours(options);
  const wrong = await withExistingStore(await loadConfig(options), (store) => store.rollUp(range));
  process.stdout.write(
    wrong === 0
      ? "Every hourly sum agrees with its rows; nothing was changed.\n"
      : `${wrong} hourly sums were wrong and are derived again. Budgets count from them when an edge starts.\n`,
  );
}

/** Sums are by the hour, so a period is made of whole hours. */
function readHours(options: RangeOptions): TimeRange {
  const { fromMs, toMs } = readRange(options);
  return {
    fromMs: fromMs === null ? null : hourOf(fromMs),
    toMs: toMs === null ? null : Math.ceil(toMs / HOUR_MS) * HOUR_MS,
  };
}

function readRange(options: RangeOptions): { readonly fromMs: number | null; readonly toMs: number | null } {
  const fromMs = options.from === undefined ? null : readTime(options.from, "--from");
  const toMs = options.to === undefined ? null : readTime(options.to, "--to");
  if (fromMs !== null && toMs !== null && fromMs >= toMs) throw new OperatorError("--from must be before --to.");
  return { fromMs, toMs };
}
