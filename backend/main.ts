#!/usr/bin/env node
import { Command, CommanderError, type OutputConfiguration } from "commander";
import { ConfigError } from "../shared/config/read-config.ts";
import { engineCommand } from "./launchers/engine-command.ts";
import { serveCommand } from "./host/serve-command.ts";
import { saeCommand } from "./inspect/sae-command.ts";
import { simCommand } from "./sim/sim-command.ts";
import { packageVersion } from "./version.ts";

/** What is wrong with a command line is one line that begins with the program's name, suggestion included. */
const OUTPUT: OutputConfiguration = {
  outputError(text, write) {
    const said = text
      .replace(/^error: /, "")
      .trim()
      .replaceAll("\n", " ");
    write(`steerage-backend: ${said}; see --help\n`);
  },
};

/** Operator faults end with 2 and one line, everything unforeseen with 1 and its stack. */
async function main(): Promise<void> {
  const program = new Command("steerage-backend")
    .description("The host agent beside the GPUs: runs engine processes, answers edges, reports load.")
    .version(packageVersion())
    .configureOutput(OUTPUT)
    .exitOverride();
  program.addCommand(serveCommand());
  program.addCommand(engineCommand());
  program.addCommand(simCommand());
  program.addCommand(saeCommand());
  for (const command of program.commands.flatMap((one) => [one, ...one.commands])) {
    command.exitOverride().showSuggestionAfterError().configureOutput(OUTPUT);
  }
  try {
    await program.parseAsync();
  } catch (error) {
    if (error instanceof CommanderError) {
      process.exitCode = error.exitCode === 0 ? 0 : 2;
    } else if (error instanceof ConfigError) {
      process.stderr.write(`steerage-backend: ${error.message}\n`);
      process.exitCode = 2;
    } else throw error;
  }
}

await main();
