import type { UsageRow } from "../ports/usage-store.ts";

type Cell = string | number | bigint | null;

/** The columns of the billing export, in order. Times are UTC in ISO 8601; money is whole nano-dollars. */
const COLUMNS: readonly (readonly [name: string, cell: (row: UsageRow) => Cell])[] = [
  ["request_id", (row) => row.requestId],
  ["at", (row) => new Date(row.atMs).toISOString()],
  ["settled_at", (row) => new Date(row.settledAtMs).toISOString()],
  ["account", (row) => row.account],
  ["project", (row) => row.project],
  ["key_id", (row) => row.keyId],
  ["model", (row) => row.model],
  ["backend", (row) => row.backend],
  ["band", (row) => row.band],
  ["prompt_tokens", (row) => row.promptTokens],
  ["cached_tokens", (row) => row.cachedTokens],
  ["completion_tokens", (row) => row.completionTokens],
  ["steering_hash", (row) => row.steeringHash],
  ["outcome", (row) => row.outcome],
  ["exactness", (row) => row.exactness],
  ["price_version", (row) => row.priceVersion],
  ["cost_nano_usd", (row) => BigInt(row.costNanoUsd)],
  ["queue_ms", (row) => row.queueMs],
  ["ttft_ms", (row) => row.ttftMs],
  ["tpot_ms", (row) => row.tpotMs],
  ["total_ms", (row) => row.totalMs],
];

/** One JSON object, without the line's end. An integer is written whole, however large. */
export function jsonLine(row: UsageRow): string {
  const members = COLUMNS.map(([name, cell]) => {
    const value = cell(row);
    return `"${name}":${typeof value === "bigint" ? value.toString() : JSON.stringify(value)}`;
  });
  return `{${members.join(",")}}`;
}

export const csvHeader = (): string => COLUMNS.map(([name]) => name).join(",");

/** By RFC 4180; null is empty. */
export function csvLine(row: UsageRow): string {
  return COLUMNS.map(([, cell]) => {
    const text = String(cell(row) ?? "");
    return /[",\r\n]/.test(text) ? `"${text.replaceAll('"', '""')}"` : text;
  }).join(",");
}
