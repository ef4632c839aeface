import { once } from "node:events";
import { chmodSync } from "node:fs";
import type { Server } from "node:http";
import { Command, InvalidArgumentError } from "commander";
import { z } from "zod";
import { ConfigError, readConfig } from "../../shared/config/read-config.ts";
import { configRows } from "../../shared/config/reference.ts";
import { type AttachedSae } from "../../shared/protocol/report.ts";
import { residualPostHookPoint } from "../../shared/steering/hook-points.ts";
import { tieToHost } from "../launchers/host-tie.ts";
import { systemClock } from "../system-clock.ts";
import { simScriptSchema } from "./script.ts";
import { type SimOptions, SimServer } from "./sim-server.ts";

const flagsSchema = z.looseObject({
  port: z.int().min(0).max(65_535).optional(),
  socket: z.string().optional(),
  model: z.string().min(1),
  slots: z.int().min(1),
  maxPending: z.int().min(0),
  contextLength: z.int().min(1),
  kvCells: z.int().min(1).optional(),
  seed: z.int(),
  sae: z.array(z.string()),
});

export function simCommand(): Command {
  const command = new Command("sim")
    .description(
      "Runs a scripted OpenAI-compatible engine: an endpoint of its own on --port, a host's engine on --socket. " +
        "A request changes the script with a `sim` member, an `x-sim` header or a model name such as `sim@ttft_ms=100`.",
    )
    .option("--port <n>", "listen on this port of the loopback; 0 takes a free one", wholeNumber)
    .option("--socket <path>", "listen on this unix socket")
    .option("--model <name>", "name of the model it serves", "sim")
    .option("--slots <n>", "requests at the same time", wholeNumber, 8)
    .option("--max-pending <n>", "requests that may wait for a slot", wholeNumber, 1_000)
    .option("--context-length <tokens>", "window of one request; 0 means 32768", wholeNumber, 32_768)
    .option("--kv-cells <tokens>", "size of the key-value cache; slots times the window if not given", wholeNumber)
    .option("--seed <n>", "what text and scripted chance depend on", wholeNumber, 0)
    .option("--sae <id:layer:features>", "claim to hold an SAE; may be repeated", collect, []);
  for (const row of configRows(simScriptSchema)) {
    const flag = `--${row.path.replaceAll("_", "-")}`;
    if (row.type === "boolean") command.option(flag, row.description);
    else command.option(`${flag} <n>`, row.description, number);
  }
  return command.action(async (flags: Record<string, unknown>) => run(flags));
}

async function run(flags: Record<string, unknown>): Promise<void> {
  const options = readConfig(flagsSchema, flags, "the command line");
  const target = options.socket ?? options.port;
  if (target === undefined) throw new ConfigError("sim needs --port or --socket");
  const contextLength = options.contextLength === 0 ? 32_768 : options.contextLength;
  const simOptions: SimOptions = {
    model: options.model,
    slots: options.slots,
    maxPending: options.maxPending,
    contextLength,
    kvCells: options.kvCells ?? options.slots * contextLength,
    seed: options.seed,
    saes: options.sae.map(saeOf),
    script: readConfig(simScriptSchema, scriptFlags(flags), "the command line"),
  };
  const { server } = new SimServer(simOptions, {
    clock: systemClock,
    crash: () => process.kill(process.pid, "SIGKILL"),
  });
  if (typeof target === "string") server.listen(target);
  else server.listen(target, "127.0.0.1");
  await once(server, "listening").catch((error: unknown) => {
    throw new ConfigError(`cannot listen on ${target}: ${error instanceof Error ? error.message : String(error)}`);
  });
  if (options.socket !== undefined) chmodSync(options.socket, 0o600);
  tieToHost();
  endOnSignals(server);
  const address = server.address();
  const place =
    typeof address === "string" || address === null ? String(target) : `http://127.0.0.1:${address.port}/v1`;
  process.stdout.write(`sim serves '${options.model}' at ${place}\n`);
}

function endOnSignals(server: Server): void {
  const end = (): void => {
    server.close(() => process.exit(0));
    server.closeAllConnections();
  };
  process.once("SIGTERM", end);
  process.once("SIGINT", end);
}

/** Commander's camelCase names back to the script's, without those that are the program's own. */
function scriptFlags(flags: Record<string, unknown>): Record<string, unknown> {
  const script: Record<string, unknown> = {};
  for (const row of configRows(simScriptSchema)) {
    const name = row.path.replace(/_(\w)/g, (_match, letter: string) => letter.toUpperCase());
    if (flags[name] !== undefined) script[row.path] = flags[name];
  }
  return script;
}

function saeOf(text: string): AttachedSae {
  const match = /^([^:]+):(\d+):(\d+)$/.exec(text);
  if (match === null) throw new ConfigError(`--sae '${text}' is not id:layer:features`);
  const layer = Number(match[2]);
  return {
    id: match[1] ?? "",
    digest: "0".repeat(64),
    layer,
    hook_point: residualPostHookPoint(layer),
    d_sae: Number(match[3]),
  };
}

function number(text: string): number {
  const value = Number(text);
  if (text.trim() === "" || !Number.isFinite(value)) throw new InvalidArgumentError("must be a number.");
  return value;
}

function wholeNumber(text: string): number {
  const value = number(text);
  if (!Number.isInteger(value)) throw new InvalidArgumentError("must be a whole number.");
  return value;
}

const collect = (text: string, before: string[]): string[] => [...before, text];
