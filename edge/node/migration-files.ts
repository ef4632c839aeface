import { readFile } from "node:fs/promises";
import path from "node:path";
import { z } from "zod";
import type { Migration } from "../store/migrations.ts";
import { packageRoot } from "./package-root.ts";

const journalSchema = z.object({ entries: z.array(z.object({ idx: z.int(), tag: z.string() })) });

/** The package's `migrations/` in order: drizzle's journal names them, each file holds statements. */
export async function readMigrations(folder = path.join(packageRoot(), "migrations")): Promise<Migration[]> {
  const text = await readFile(path.join(folder, "meta", "_journal.json"), "utf8");
  const { entries } = journalSchema.parse(JSON.parse(text));
  return Promise.all(
    entries
      .toSorted((one, other) => one.idx - other.idx)
      .map(async ({ idx, tag }) => ({
        position: idx,
        tag,
        statements: (await readFile(path.join(folder, `${tag}.sql`), "utf8"))
          .split("--> statement-breakpoint")
          .map((statement) => statement.trim())
          .filter((statement) => statement !== ""),
      })),
  );
}
