#!/usr/bin/env node
import { Command, CommanderError } from "commander";
import { ConfigError } from "../../shared/config/read-config.ts";
import { StoreConflict } from "../ports/key-store.ts";
import { registerAccounts } from "./commands/accounts.ts";
import { registerConfig } from "./commands/config.ts";
import { registerHosts } from "./commands/hosts.ts";
import { registerKeys } from "./commands/keys.ts";
import { registerMigrate } from "./commands/migrate.ts";
import { registerProjects } from "./commands/projects.ts";
import { registerServe } from "./commands/serve.ts";
import { registerUsage } from "./commands/usage.ts";
import { OperatorError } from "./operator-error.ts";
import { packageVersion } from "./version.ts";

const program = new Command("steerage")
  .description("The edge of Steerage: an OpenAI-compatible gateway with SAE steering, and its operator's commands.")
  .version(packageVersion())
  .configureOutput({
    outputError: (text, write) =>
      write(
        `steerage: ${text
          .replace(/^error: /, "")
          .trim()
          .replaceAll("\n", " ")}; see --help\n`,
      ),
  })
  .exitOverride();

registerServe(program);
registerKeys(program);
registerProjects(program);
registerAccounts(program);
registerHosts(program);
registerUsage(program);
registerMigrate(program);
registerConfig(program);

try {
  await program.parseAsync();
} catch (thrown) {
  process.exitCode = exitCodeOf(thrown);
}

/** A fault that the operator can mend is one line on stderr and exit code 2; anything else is ours and shows its stack. */
function exitCodeOf(thrown: unknown): number {
  if (thrown instanceof CommanderError) return thrown.exitCode === 0 ? 0 : 2;
  if (thrown instanceof OperatorError) return said(thrown, thrown.exitCode);
  if (thrown instanceof ConfigError || thrown instanceof StoreConflict) return said(thrown, 2);
  process.stderr.write(`steerage: ${thrown instanceof Error ? (thrown.stack ?? thrown.message) : String(thrown)}\n`);
  return 1;
}

function said(error: Error, exitCode: number): number {
  const lines = error.message.split("\n");
  // A single fault fits on the line that introduces it.
  process.stderr.write(
    `steerage: ${lines.length === 2 ? lines.map((line) => line.trim()).join(" ") : error.message}\n`,
  );
  return exitCode;
}
