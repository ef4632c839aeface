import { readFile } from "node:fs/promises";
import { join } from "node:path";
import { z } from "zod";
import { SaeFileError } from "./sae-file-error.ts";

/** What is known of the features, beside the weights: a list of one object per feature. */
export const FEATURES_FILE = "features.json";

const maximaSchema = z.array(z.looseObject({ index: z.int().min(0), max_activation: z.number().min(0).nullish() }));

/** Largest recorded activation by feature; empty where the folder records none. Throws `SaeFileError`. */
export async function readRecordedMaxima(folder: string): Promise<ReadonlyMap<number, number>> {
  const file = join(folder, FEATURES_FILE);
  let text: string;
  try {
    text = await readFile(file, "utf8");
  } catch {
    return new Map();
  }
  return new Map(
    parse(text, file).flatMap(({ index, max_activation: maximum }): [number, number][] =>
      maximum === null || maximum === undefined || maximum === 0 ? [] : [[index, maximum]],
    ),
  );
}

function parse(text: string, file: string): z.infer<typeof maximaSchema> {
  let document: unknown;
  try {
    document = JSON.parse(text);
  } catch (thrown) {
    throw new SaeFileError(file, "is not JSON", thrown);
  }
  const read = maximaSchema.safeParse(document);
  if (read.success) return read.data;
  const place = read.error.issues[0]?.path.join(".") ?? "";
  throw new SaeFileError(file, `is not a list of features with index and max_activation (at ${place})`);
}
