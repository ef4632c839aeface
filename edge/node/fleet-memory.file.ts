import { readFile, rename, writeFile } from "node:fs/promises";
import path from "node:path";
import { z } from "zod";
import type { Logger } from "../../shared/logging/logger.ts";
import { reportSchema, type Report } from "../../shared/protocol/report.ts";
import type { FleetMemory } from "../fleet/fleet-memory.ts";

const fileSchema = z.array(reportSchema);

export interface FleetMemoryFile extends FleetMemory {
  /** Resolves when what was remembered last is on disk. */
  written(): Promise<void>;
}

/** `DATA/fleet.json`, replaced whole. It is a cache: a file that is missing or damaged is as good as an empty one. */
export async function fleetMemoryOf(dataDirectory: string, logger: Logger): Promise<FleetMemoryFile> {
  const file = path.join(dataDirectory, "fleet.json");
  const fresh = `${file}.new`;
  let latest: readonly Report[] | null = null;
  let writing: Promise<void> | null = null;
  const writeAll = async (): Promise<void> => {
    while (latest !== null) {
      const reports = latest.map((report): Report => ({ ...report, ended: [], counters: [] }));
      latest = null;
      await writeFile(fresh, JSON.stringify(reports), { mode: 0o600 });
      await rename(fresh, file);
    }
  };
  return {
    known: await readFile(file, "utf8")
      .then((text) => fileSchema.parse(JSON.parse(text)))
      .catch(() => []),
    remember(reports) {
      latest = reports;
      writing ??= writeAll()
        .catch((thrown: unknown) => logger.error("what hosts serve could not be remembered", {}, thrown))
        .finally(() => (writing = null));
    },
    written: () => writing ?? Promise.resolve(),
  };
}
