import { z } from "zod";
import type { LoadedSae } from "../engine-model.ts";
import type { FeatureNote } from "../../sae/feature-metadata.ts";

export interface FeatureEntry {
  readonly index: number;
  readonly label: string | null;
  readonly density: number | null;
  readonly max_activation: number | null;
  readonly top_tokens: readonly string[];
  /** Length of the decoder row that the unit `raw` multiplies. */
  readonly decoder_norm: number;
  /** Of its decoder row with that of the feature asked for by `nearest`. */
  readonly cosine?: number;
}

const SORTS = ["index", "label", "density", "max_activation", "cosine"] as const;
type Sort = (typeof SORTS)[number];

const wholeNumber = z.string().regex(/^\d{1,9}$/, "must be a whole number");

/** The query of GET /v1/saes/{id}/features. */
export const featureQuerySchema = z.strictObject({
  /** Words that must all stand in the label or in a top token. */
  q: z.string().max(200).default(""),
  /** Ascending; with a minus in front descending. */
  sort: z
    .string()
    .refine((text) => SORTS.some((sort) => sort === text.replace(/^-/, "")), `must be one of ${SORTS.join(", ")}`)
    .optional(),
  /** Ranks by the cosine of decoder rows with this feature's. */
  nearest: wholeNumber.transform(Number).optional(),
  limit: wholeNumber.transform(Number).pipe(z.int().min(1).max(1_000)).default(50),
  offset: wholeNumber.transform(Number).default(0),
});
export type FeatureQuery = z.output<typeof featureQuerySchema>;

const UNKNOWN: FeatureNote = { label: null, density: null, maxActivation: null, topTokens: [] };

export interface FeaturePage {
  readonly total: number;
  readonly entries: readonly FeatureEntry[];
}

/** The features that a query asks for. `nearest` is a feature of this SAE. */
export function listFeatures(sae: LoadedSae, query: FeatureQuery): FeaturePage {
  const cosines = query.nearest === undefined ? null : cosinesWith(sae, query.nearest);
  const words = query.q
    .toLowerCase()
    .split(/\s+/)
    .filter((word) => word !== "");
  const found: FeatureEntry[] = [];
  for (let index = 0; index < sae.featureCount; index += 1) {
    if (!matches(sae.notes.get(index) ?? UNKNOWN, words)) continue;
    const entry = entryOf(sae, index);
    found.push(cosines === null ? entry : { ...entry, cosine: cosines[index] ?? 0 });
  }
  const sort = query.sort ?? (cosines === null ? "index" : "-cosine");
  const sorted = found.toSorted(comparison(sort));
  return { total: found.length, entries: sorted.slice(query.offset, query.offset + query.limit) };
}

export function entryOf(sae: LoadedSae, index: number): FeatureEntry {
  const { label, density, maxActivation, topTokens } = sae.notes.get(index) ?? UNKNOWN;
  return {
    index,
    label,
    density,
    max_activation: maxActivation,
    top_tokens: topTokens,
    decoder_norm: Math.sqrt(dot(sae, index, index)),
  };
}

function matches({ label, topTokens }: FeatureNote, words: readonly string[]): boolean {
  if (words.length === 0) return true;
  const text = [label ?? "", ...topTokens].join("\n").toLowerCase();
  return words.every((word) => text.includes(word));
}

/** What is not known comes last, whichever way; ties by index. */
function comparison(sort: string): (a: FeatureEntry, b: FeatureEntry) => number {
  const sign = sort.startsWith("-") ? -1 : 1;
  const key = SORTS.find((one) => one === sort.replace(/^-/, "")) ?? "index";
  return (a, b) => {
    const [left, right] = [valueOf(a, key), valueOf(b, key)];
    if (left === null || right === null) return Number(left === null) - Number(right === null) || a.index - b.index;
    return sign * compare(left, right) || a.index - b.index;
  };
}

function valueOf(entry: FeatureEntry, key: Sort): number | string | null {
  return key === "cosine" ? (entry.cosine ?? null) : entry[key];
}

function compare(a: number | string, b: number | string): number {
  if (typeof a === "number" && typeof b === "number") return a - b;
  return String(a) < String(b) ? -1 : Number(String(a) > String(b));
}

function cosinesWith(sae: LoadedSae, feature: number): Float64Array {
  const own = Math.sqrt(dot(sae, feature, feature));
  return Float64Array.from({ length: sae.featureCount }, (_, other) => {
    const lengths = own * Math.sqrt(dot(sae, other, other));
    return lengths > 0 ? dot(sae, feature, other) / lengths : 0;
  });
}

function dot({ decoderRows, embeddingWidth: width }: LoadedSae, a: number, b: number): number {
  let sum = 0;
  for (let i = 0; i < width; i += 1) sum += (decoderRows[a * width + i] ?? 0) * (decoderRows[b * width + i] ?? 0);
  return sum;
}
