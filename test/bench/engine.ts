/** `npm run bench:engine`: the native engine beside llama.cpp's own server. See engine/flags.ts for its options. */
import { cpus, loadavg } from "node:os";
import { physicalCores } from "../../backend/engine/load/physical-cores.ts";
import { isMet, tableOf, type FigureRow } from "./engine/bars.ts";
import { benchedModel, type BenchedModel } from "./engine/benched-model.ts";
import type { BenchRun } from "./engine/figures/bench-run.ts";
import { distinctSteerings } from "./engine/figures/distinct-steerings.ts";
import { firstToken } from "./engine/figures/first-token.ts";
import { hookInstructions } from "./engine/figures/hook-instructions.ts";
import { sensing, steering } from "./engine/figures/hooks-over-http.ts";
import { memory } from "./engine/figures/memory.ts";
import { throughput } from "./engine/figures/throughput.ts";
import { FlagError, HELP, readFlags, type Figure } from "./engine/flags.ts";
import { missingYardstick } from "./engine/servers.ts";
import { Numbers } from "./engine/workload.ts";

type Taken = (model: BenchedModel, run: BenchRun) => Promise<readonly FigureRow[]>;

const TAKE: Readonly<Record<Figure, Taken>> = {
  throughput,
  "first-token": async (model, run) => [await firstToken(model, run)],
  "hook-instructions": hookInstructions,
  steering,
  sensing,
  "distinct-steerings": async (model, run) => [await distinctSteerings(model, run)],
  // Memory does not ask for size, and of the small model many requests are soon done.
  memory: async (model, run) => (model.name === "demo" ? [await memory(model, run)] : []),
};
const NEEDS_YARDSTICK: ReadonlySet<Figure> = new Set(["throughput", "first-token"]);

function say(text: string): void {
  process.stderr.write(`${text}\n`);
}

async function bench(args: readonly string[]): Promise<void> {
  const flags = readFlags(args, await physicalCores());
  if (flags === null) {
    console.log(HELP);
    return;
  }
  const missing = flags.only.some((figure) => NEEDS_YARDSTICK.has(figure)) ? missingYardstick() : null;
  if (missing !== null) throw new FlagError(missing);
  const started = Date.now();
  const loadBefore = loadavg()[0] ?? 0;
  const run: BenchRun = { flags, numbers: new Numbers(), say };
  const rows: FigureRow[] = [];
  for (const name of flags.models) {
    const model = benchedModel(name);
    for (const figure of flags.only) rows.push(...(await TAKE[figure](model, run)));
  }
  say(`took ${Math.round((Date.now() - started) / 1_000)} s`);
  const machine = { cpu: cpus()[0]?.model ?? "unknown", cores: cpus().length, load_before: loadBefore };
  if (!flags.json) {
    console.log(tableOf(rows));
    return;
  }
  const figures = rows.map((row) => ({ ...row, met: isMet(row) }));
  console.log(JSON.stringify({ bench: "engine", machine, threads: flags.threads, rounds: flags.rounds, figures }));
}

try {
  await bench(process.argv.slice(2));
} catch (error) {
  say(`bench:engine: ${error instanceof Error ? error.message : String(error)}`);
  process.exitCode = error instanceof FlagError ? 2 : 1;
}
