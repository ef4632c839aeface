/** What was really done to one SAE's hook point in one answer. */
export interface AppliedSteering {
  readonly saeId: string;
  readonly layer: number;
  /** Features with a strength other than zero. */
  readonly features: number;
  readonly hash: string;
  /** A strength lay outside the bounds and was brought back. */
  readonly clamped: boolean;
}

/**
 * The value of X-Steerage-Steering and of the stream's steerage chunk: an RFC 8941 list, one `inline` item per SAE
 * by layer then id, or the single item `none`.
 */
export function receiptOf(applied: readonly AppliedSteering[]): string {
  if (applied.length === 0) return "none";
  const sorted = applied.toSorted((a, b) => a.layer - b.layer || (a.saeId < b.saeId ? -1 : a.saeId > b.saeId ? 1 : 0));
  return sorted
    .map(
      ({ saeId, layer, features, hash, clamped }) =>
        `inline;sae=${structuredString(saeId)};layer=${layer};features=${features};hash="${hash}"${clamped ? ";clamped" : ""}`,
    )
    .join(", ");
}

/** RFC 8941 strings hold printable ASCII only, so anything else is percent-encoded first, as the percent sign is. */
function structuredString(text: string): string {
  const ascii = text.replace(/[^\x20-\x24\x26-\x7e]/gu, (character) => encodeURIComponent(character));
  return `"${ascii.replace(/["\\]/g, (character) => `\\${character}`)}"`;
}

/** The hash of a receipt's first item, or null: what the ledger keeps. */
export function hashOfReceipt(receipt: string): string | null {
  return /;hash="([0-9a-f]{64})"/.exec(receipt)?.[1] ?? null;
}
