import { readFile } from "node:fs/promises";
import { join } from "node:path";
import { z } from "zod";
import { SaeFileError } from "./sae-file-error.ts";

/** What is known of the features, beside the weights: a list of one object per feature. */
export const FEATURES_FILE = "features.json";

/** What somebody found out about one feature. */
export interface FeatureNote {
  readonly label: string | null;
  /** Share of tokens at which it is active. */
  readonly density: number | null;
  /** Largest activation that was seen. */
  readonly maxActivation: number | null;
  readonly topTokens: readonly string[];
}

const notesSchema = z.array(
  z.looseObject({
    index: z.int().min(0),
    label: z.string().nullish(),
    density: z.number().min(0).nullish(),
    max_activation: z.number().min(0).nullish(),
    top_tokens: z.array(z.string()).nullish(),
  }),
);

/** Notes by feature; empty where the folder has none. Throws `SaeFileError`. */
export async function readFeatureNotes(folder: string): Promise<ReadonlyMap<number, FeatureNote>> {
  const file = join(folder, FEATURES_FILE);
  let text: string;
  try {
    text = await readFile(file, "utf8");
  } catch {
    return new Map();
  }
  return new Map(
    parse(text, file).map(({ index, label, density, max_activation: maximum, top_tokens: tokens }) => [
      index,
      {
        label: label ?? null,
        density: density ?? null,
        // Nobody steers by a share of nothing.
        maxActivation: maximum === 0 ? null : (maximum ?? null),
        topTokens: tokens ?? [],
      },
    ]),
  );
}

/** Largest recorded activation by feature, for those of which one is recorded. */
export function recordedMaxima(notes: ReadonlyMap<number, FeatureNote>): ReadonlyMap<number, number> {
  return new Map(
    [...notes].flatMap(([index, { maxActivation }]) => (maxActivation === null ? [] : [[index, maxActivation]])),
  );
}

function parse(text: string, file: string): z.infer<typeof notesSchema> {
  let document: unknown;
  try {
    document = JSON.parse(text);
  } catch (thrown) {
    throw new SaeFileError(file, "is not JSON", thrown);
  }
  const read = notesSchema.safeParse(document);
  if (read.success) return read.data;
  const place = read.error.issues[0]?.path.join(".") ?? "";
  throw new SaeFileError(file, `is not a list of features with index, label and max_activation (at ${place})`);
}
