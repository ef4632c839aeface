import { readFile } from "node:fs/promises";
import { join } from "node:path";
import { Command, InvalidArgumentError, Option } from "commander";
import { ConfigError } from "../../shared/config/read-config.ts";
import { CALIBRATION_FILE, DEFAULT_MIN_EXPLAINED_VARIANCE } from "../ports/engine-options.ts";
import { readReference } from "./reference-file.ts";
import type { Inspection } from "./inspection.ts";

interface InspectFlags {
  readonly text?: string;
  readonly prompt?: string;
  readonly layer?: number;
  readonly activations?: true;
  readonly reference?: string;
  readonly minExplainedVariance: number;
  readonly json?: true;
}

export function saeCommand(): Command {
  const inspect = new Command("inspect")
    .description(
      "Measures an SAE on a model: does it explain the residual stream of this very file? " +
        `Without a text it measures on the SAE's own ${CALIBRATION_FILE}, where there is one.`,
    )
    .argument("<model.gguf>", "the model's file")
    .argument("<sae_dir>", "folder of the SAE: SAELens, Gemma Scope, Llama Scope or sparsify")
    .addOption(new Option("--text <file>", "text to measure on, cut into windows").conflicts("prompt"))
    .option("--prompt <text>", "text to measure on, as one prompt")
    .option("--layer <n>", "block after which it reads, instead of what it says itself", readLayer)
    .option("--activations", "every active feature at every position; needs --prompt or --text")
    .option(
      "--reference <file>",
      "what --activations --json printed for another file of this model, such as the unquantised one: tells which " +
        "features survive; needs the same --prompt or --text",
    )
    .addOption(
      new Option("--min-explained-variance <share>", "least share of the variance for a fit")
        .argParser(readShare)
        .default(DEFAULT_MIN_EXPLAINED_VARIANCE),
    )
    .option("--json", "one JSON object")
    .action(inspectAndPrint);
  return new Command("sae").description("Looks at sparse autoencoders.").addCommand(inspect);
}

async function inspectAndPrint(modelPath: string, saePath: string, flags: InspectFlags): Promise<void> {
  const ofPositions = flags.activations === true ? "--activations" : flags.reference && "--reference";
  if (ofPositions !== undefined && flags.text === undefined && flags.prompt === undefined) {
    throw new ConfigError(`${ofPositions} needs --prompt or --text`);
  }
  const reference = flags.reference === undefined ? null : await readReference(flags.reference);
  const text = await textOf(flags, saePath);
  // Loaded late: no other command needs the native core in this process.
  const [{ inspectSae }, { loadNative, NativeLoadError, nativeErrorCode }, { threadCount }, { physicalCores }] =
    await Promise.all([
      import("./inspection.ts"),
      import("../native/load.ts"),
      import("../engine/load/thread-count.ts"),
      import("../engine/load/physical-cores.ts"),
    ]);
  const cores = await physicalCores();
  const addon = await loadNative({ variant: "cpu", onLog: () => undefined }).catch((thrown: unknown) => {
    throw thrown instanceof NativeLoadError ? new ConfigError(oneLine(thrown.message)) : thrown;
  });
  let inspection: Inspection;
  try {
    inspection = await inspectSae(
      {
        modelPath,
        saePath,
        layer: flags.layer ?? null,
        text,
        whole: flags.prompt !== undefined || ofPositions !== undefined,
        withActivations: flags.activations === true,
        reference,
        minExplainedVariance: flags.minExplainedVariance,
        threadsFor: (parameterCount) => threadCount(0, parameterCount, cores),
      },
      addon,
    );
  } catch (thrown) {
    if (!(thrown instanceof Error)) throw thrown;
    if (thrown.name === "SaeFileError") throw new ConfigError(oneLine(thrown.message));
    if (nativeErrorCode(thrown) !== null) throw new ConfigError(oneLine(named(thrown.message, modelPath)));
    throw thrown;
  }
  process.stdout.write(flags.json === true ? `${JSON.stringify(inspection)}\n` : told(inspection));
}

async function textOf(flags: InspectFlags, saePath: string): Promise<string | null> {
  if (flags.prompt !== undefined) return flags.prompt;
  if (flags.text === undefined) return await readFile(join(saePath, CALIBRATION_FILE), "utf8").catch(() => null);
  try {
    return await readFile(flags.text, "utf8");
  } catch (error) {
    throw new ConfigError(`${flags.text} cannot be read: ${error instanceof Error ? error.message : String(error)}`);
  }
}

function told(inspection: Inspection): string {
  const { activations, survival, ...figures } = inspection;
  const lines = Object.entries(figures).map(
    ([name, value]) => `${name.padEnd(20)}${typeof value === "number" ? roundedText(value) : (value ?? "unmeasured")}`,
  );
  if (survival !== undefined)
    lines.push(`${"survival".padEnd(20)}${survival.survived} of ${survival.compared} features`);
  for (const { position, token_id: token, features } of activations?.positions ?? []) {
    const active = features.toSorted((a, b) => b.value - a.value);
    lines.push(
      `${position}\ttoken ${token}\t${active.map(({ index, value }) => `${index}:${value.toFixed(2)}`).join(" ")}`,
    );
  }
  return `${lines.join("\n")}\n`;
}

function roundedText(value: number): string {
  return Number.isInteger(value) ? String(value) : value.toFixed(4);
}

function readLayer(text: string): number {
  if (/^\d{1,6}$/.test(text)) return Number(text);
  throw new InvalidArgumentError("It must be a block number, 0 or more.");
}

function readShare(text: string): number {
  const share = Number(text);
  if (text.trim() !== "" && share <= 1) return share;
  throw new InvalidArgumentError("It must be a number of at most 1.");
}

/** Some messages of the native core name the file, some do not. */
function named(message: string, file: string): string {
  return message.includes(file) ? message : `${file}: ${message}`;
}

function oneLine(text: string): string {
  return text.replace(/\s*\n\s*/g, " ");
}
