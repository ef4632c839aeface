import { readFile } from "node:fs/promises";
import { z } from "zod";
import { ConfigError } from "../../shared/config/read-config.ts";
import type { ActivePosition } from "../sae/feature-survival.ts";

const fileSchema = z.looseObject({
  activations: z.looseObject({
    positions: z.array(
      z.looseObject({
        position: z.int(),
        token_id: z.int(),
        features: z.array(z.looseObject({ index: z.int().min(0), value: z.number() })),
      }),
    ),
  }),
});

/** What `sae inspect --activations --json` printed for the model that is taken as the reference. */
export async function readReference(file: string): Promise<readonly ActivePosition[]> {
  let document: unknown;
  try {
    document = JSON.parse(await readFile(file, "utf8"));
  } catch (error) {
    throw new ConfigError(`${file} cannot be read: ${error instanceof Error ? error.message : String(error)}`);
  }
  const read = fileSchema.safeParse(document);
  if (read.success) return read.data.activations.positions;
  throw new ConfigError(`${file} is not what 'sae inspect --activations --json' prints`);
}
