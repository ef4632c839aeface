import type { Command } from "commander";
import { storeOptions } from "../command-store.ts";
import { migrateDatabase } from "../database.ts";
import { loadConfig, withConfigOptions, type ConfigOptions } from "../load-config.ts";

/** `steerage migrate`: for databases on a server; an edge migrates its own by itself. */
export function registerMigrate(program: Command): void {
  withConfigOptions(program.command("migrate"))
    .description("bring the database to this version, after a backup copy of a file")
    .action(async (options: ConfigOptions) => {
      const { applied } = await migrateDatabase(storeOptions(await loadConfig(options)));
      process.stdout.write(
        applied.length === 0
          ? "The database is up to date; nothing was changed.\n"
          : `The database was migrated: ${applied.join(", ")}.\n`,
      );
    });
}
