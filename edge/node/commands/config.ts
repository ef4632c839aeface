import type { Command } from "commander";
import * as settings from "../../web/settings-of-config.ts";
import { environment } from "../env.ts";
import { loadConfig } from "../load-config.ts";

interface CheckOptions {
  readonly json?: boolean;
}

/** `steerage config check FILE`: what `serve` would say of a file, without starting anything. */
export function registerConfig(program: Command): void {
  program
    .command("config")
    .description("configuration files")
    .command("check")
    .description(
      "check a file, with the environment over it, as `serve` and a reload do; exit code 2 names every fault",
    )
    .argument("<file>", "configuration file (YAML)")
    .option("--json", "one JSON line: the file, absolute paths, and what is missing in the environment")
    .action(async (file: string, options: CheckOptions) => {
      const { config, dataDirectory, databaseUrl } = await loadConfig({ config: file });
      const missing = settings.missingSecrets(config, (name) => environment[name]);
      if (options.json === true) {
        const told = { valid: true, file, data: dataDirectory, database: databaseUrl, missing_keys_of: missing };
        process.stdout.write(`${JSON.stringify(told)}\n`);
        return;
      }
      for (const endpoint of missing) {
        process.stderr.write(`steerage: the key of endpoint '${endpoint}' is not in the environment of this command\n`);
      }
      process.stdout.write(`${file} is valid.\n`);
    });
}
