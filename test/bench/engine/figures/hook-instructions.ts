import { execFile, execFileSync } from "node:child_process";
import { readdirSync } from "node:fs";
import path from "node:path";
import { promisify } from "node:util";
import { librariesDirectory } from "../../../../backend/native/load.ts";
import { ROOT } from "../root.ts";
import { BARS, type Bar, type FigureRow } from "../bars.ts";
import { BENCH_FOLDER, type BenchedModel } from "../benched-model.ts";
import type { BenchRun } from "./bench-run.ts";

const STREAMS = 4;
/** Every step runs nearly the same instructions, so a few are enough. */
const STEPS = 3;

/** The product's own sources that the program is made of. */
const SOURCES = [
  "batch_builder",
  "eval_hook",
  "hook_plan",
  "hook_set",
  "job",
  "native_error",
  "ownership_check",
  "residual_edit",
  "sae_encoder",
  "step_events",
  "stop_matcher",
  "thread_pool",
  "vector_math",
];

const STATES: readonly { readonly name: string; readonly figure: string; readonly bar: Bar }[] = [
  { name: "idle", figure: "hooks compiled in, none active", bar: BARS.hooksIdle },
  { name: "steered", figure: "every row steered at one layer", bar: BARS.steered },
  { name: "senses-8", figure: "every row senses 8 features", bar: BARS.sensesEight },
  { name: "senses-top-16", figure: "every row encodes 512 features, top 16", bar: BARS.sensesTop },
];

/** Instructions of decode steps with hooks over those without an eval callback, counted by callgrind. */
export async function hookInstructions(model: BenchedModel, run: BenchRun): Promise<FigureRow[]> {
  const libraries = await librariesDirectory("cpu");
  const program = compile(libraries);
  const count = (state: string) => countIn([program, model.path, libraries, String(STREAMS), String(STEPS), state]);
  run.say(`instructions of a step, ${model.name}`);
  const none = await count("none");
  const rows: FigureRow[] = [];
  for (const { name, figure, bar } of STATES) {
    const hooked = await count(name);
    if ((name === "idle") !== (hooked.hookCalls === 0))
      throw new Error(`${name}: the hook worked ${hooked.hookCalls} times`);
    run.say(`  ${name}: ${((hooked.instructions / none.instructions - 1) * 100).toFixed(3)} %`);
    rows.push({
      figure: `${figure}, by instructions`,
      model: model.name,
      measure: "more",
      value: hooked.instructions / none.instructions - 1,
      bar,
      of: { "hooked, of a step": hooked.instructions / STEPS, "without a callback": none.instructions / STEPS },
    });
  }
  return rows;
}

/** Links the variant's libraries directly, being no product. */
function compile(libraries: string): string {
  const program = path.join(BENCH_FOLDER, "hook-cost");
  const named = readdirSync(libraries).filter((name) => /^libllama\.v|^libggml\.v|^libggml-base/u.test(name));
  execFileSync(
    "g++",
    [
      // As the addon itself is compiled.
      "-O3",
      "-std=gnu++17",
      "-Ibackend/native/src",
      "-Ibuild/llama.cpp/include",
      "-Ibuild/llama.cpp/ggml/include",
      "test/bench/engine/hook-cost.cc",
      ...SOURCES.map((name) => `backend/native/src/${name}.cc`),
      "-o",
      program,
      `-L${libraries}`,
      ...named.map((name) => `-l:${name}`),
      `-Wl,-rpath,${libraries}`,
    ],
    { cwd: ROOT },
  );
  return program;
}

async function countIn(command: readonly string[]): Promise<{ instructions: number; hookCalls: number }> {
  const valgrind = ["--tool=callgrind", "--collect-atstart=no", "--toggle-collect=measuredSteps"];
  const args = [...valgrind, "--callgrind-out-file=/dev/null", ...command];
  const { stdout, stderr } = await promisify(execFile)("valgrind", args).catch((error: unknown) => {
    const missing = error instanceof Error && "code" in error && error.code === "ENOENT";
    throw missing ? new Error("valgrind is missing: install it (Debian: apt-get install valgrind)") : error;
  });
  const collected = /Collected : (\d+)/u.exec(stderr)?.[1];
  if (collected === undefined) throw new Error(`callgrind counted nothing: ${stderr}`);
  return { instructions: Number(collected), hookCalls: Number(stdout.split(" ")[0]) };
}
