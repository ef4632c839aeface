import { byLayerThenId } from "./canonical-form.ts";

/** What was really done to one SAE's hook point in one answer. */
export interface AppliedSteering {
  readonly saeId: string;
  readonly layer: number;
  /** Features whose edit can change a row. */
  readonly features: number;
  readonly hash: string;
  /** A strength lay outside the bounds and was brought back. */
  readonly clamped: boolean;
  /** Where it came from a profile of the host's. */
  readonly profile?: { readonly name: string; readonly intensity: number };
  /** Modes other than `add` that were used, in any order. */
  readonly modes?: readonly string[];
  /** Where not all positions are edited. */
  readonly positions?: string;
  readonly excludesSpecialTokens?: boolean;
  /** Edits that depend on activations: rows that were changed in this answer, cached ones left out. */
  readonly rows?: number;
}

/**
 * The value of X-Steerage-Steering and of the stream's steerage chunk: an RFC 8941 list, one item per SAE by layer
 * then id, `inline` or `profile`, or the single item `none`. Parameters: sae, layer, features, hash; of a profile first
 * name, source, intensity; and where it applies clamped, modes, positions, no-special-tokens, rows.
 */
export function receiptOf(applied: readonly AppliedSteering[]): string {
  if (applied.length === 0) return "none";
  return applied.toSorted(byLayerThenId).map(itemOf).join(", ");
}

function itemOf(one: AppliedSteering): string {
  let item = `${kindOf(one)};sae=${structuredString(one.saeId)};layer=${one.layer};features=${one.features};hash="${one.hash}"`;
  if (one.clamped) item += ";clamped";
  if (one.modes !== undefined && one.modes.length > 0) item += `;modes="${one.modes.toSorted().join(" ")}"`;
  if (one.positions !== undefined && one.positions !== "all") item += `;positions="${one.positions}"`;
  if (one.excludesSpecialTokens === true) item += ";no-special-tokens";
  if (one.rows !== undefined) item += `;rows=${one.rows}`;
  return item;
}

function kindOf({ profile }: AppliedSteering): string {
  if (profile === undefined) return "inline";
  // A decimal of RFC 8941 has at most three digits after its point.
  const intensity = String(Math.round(profile.intensity * 1_000) / 1_000);
  return `profile;name=${structuredString(profile.name)};source=request;intensity=${intensity}`;
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
