import { readFileSync } from "node:fs";
import { Command } from "commander";
import { ConfigError, readConfig } from "../../shared/config/read-config.ts";
import { type EngineOptions, engineOptionsSchema } from "../ports/engine-options.ts";
import { UNUSABLE_EXIT_CODE } from "../ports/engine-process.ts";
import { sayFarewell, tieToHost } from "./host-tie.ts";

/** Native error codes for which another start with the same files can only fail again. */
const UNUSABLE = new Set<unknown>([
  "invalid_argument",
  "model_file_missing",
  "model_file_invalid",
  "model_unsupported",
  "hook_point_unsupported",
  "sae_shape_mismatch",
]);

export function engineCommand(): Command {
  return new Command("engine")
    .description("Runs one native engine process; the host starts it by itself.")
    .requiredOption("--options-json <file>", "what to load and where to listen, as the host's launcher writes it")
    .action(async (flags: { optionsJson: string }) => runTied(readOptions(flags.optionsJson)));
}

async function runTied(options: EngineOptions): Promise<void> {
  tieToHost();
  try {
    // Loaded late: the native core must not be mapped into the host's own process.
    const { runEngine } = await import("../engine/run.ts");
    await runEngine(options);
    process.exit(0);
  } catch (error) {
    await sayFarewell(error instanceof Error ? error.message : String(error));
    process.exit(isUnusable(error) ? UNUSABLE_EXIT_CODE : 1);
  }
}

function readOptions(file: string): EngineOptions {
  let document: unknown;
  try {
    document = JSON.parse(readFileSync(file, "utf8"));
  } catch (error) {
    throw new ConfigError(`${file} cannot be read: ${error instanceof Error ? error.message : String(error)}`);
  }
  return readConfig(engineOptionsSchema, document, file);
}

function isUnusable(error: unknown): boolean {
  if (error instanceof ConfigError) return true;
  if (!(error instanceof Error)) return false;
  return error.name === "SaeFileError" || ("code" in error && UNUSABLE.has(error.code));
}
