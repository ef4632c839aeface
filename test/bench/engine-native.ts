/**
 * Tokens per second of the native core in process, with no, additive and sensing hooks, beside a bare C++ loop on the
 * same libraries, model, prompt and sampler. Measurements are interleaved, because a shared machine drifts; CPU time per
 * token stands beside the rate, because it tells the two apart even when others use the cores.
 *
 * usage: node dist/test/bench/engine-native.js [--json] [--model FILE.gguf] [--threads N] [--rounds N] [--streams 1,4,16]
 */
import { execFileSync } from "node:child_process";
import { mkdirSync, readdirSync } from "node:fs";
import { availableParallelism } from "node:os";
import { join, resolve } from "node:path";
import { performance } from "node:perf_hooks";
import { parseArgs } from "node:util";
import type { GenerationJob, NativeAddon, NativeModel, NativeSae, SensingPlan } from "../../backend/native/binding.ts";
import { librariesDirectory, loadNative } from "../../backend/native/load.ts";

const STREAMS = [1, 4, 16];
const TOKENS_PER_STREAM = 96;
const CELLS_PER_STREAM = 512;
const BATCH_TOKENS = 512;
const ROUNDS_PER_PASS = 5;
const HOOKED_LAYER = 1;
const SENSED_FEATURES = 16;
const SAE_FEATURES = 512;
const PROMPT = "Once upon a time there was a sailor on the beach. ".repeat(5);

const MODES = ["none", "additive", "sensing"] as const;
type Mode = (typeof MODES)[number];

const { values: flags } = parseArgs({
  options: {
    json: { type: "boolean", default: false },
    model: { type: "string", default: "backend/demo/demo-storyteller-1m.q8_0.gguf" },
    threads: { type: "string", default: String(Math.min(availableParallelism(), 8)) },
    rounds: { type: "string", default: "5" },
    streams: { type: "string", default: STREAMS.join(",") },
    help: { type: "boolean", default: false },
  },
});

function median(values: readonly number[]): number {
  return values.toSorted((a, b) => a - b)[Math.floor(values.length / 2)] ?? 0;
}

/** Compiles the C++ loop into build/; it links the variant's libraries directly, being no product. */
function buildBaseline(libraries: string): string {
  const out = resolve("build/bench");
  mkdirSync(out, { recursive: true });
  const program = join(out, "engine-native-baseline");
  const named = readdirSync(libraries).filter((name) => /^libllama\.v|^libggml\.v|^libggml-base/u.test(name));
  execFileSync("g++", [
    "-O3",
    "-std=c++17",
    "-Ibuild/llama.cpp/include",
    "-Ibuild/llama.cpp/ggml/include",
    "test/bench/engine-native-baseline.cc",
    "-o",
    program,
    `-L${libraries}`,
    ...named.map((name) => `-l:${name}`),
    `-Wl,-rpath,${libraries}`,
  ]);
  return program;
}

/** What one measurement gives: tokens per second of the median round, CPU microseconds per token over all rounds. */
interface Measured {
  readonly rate: number;
  readonly cpuUs: number;
}

function medianOf(all: readonly Measured[]): Measured {
  return { rate: median(all.map(({ rate }) => rate)), cpuUs: median(all.map(({ cpuUs }) => cpuUs)) };
}

function runBaseline(program: string, args: readonly (string | number)[]): Measured {
  const [rate = 0, cpuUs = 0] = execFileSync(program, args.map(String), { encoding: "utf8" }).split(" ").map(Number);
  return { rate, cpuUs };
}

/** One open context and what it needs to run a whole round of streams. */
class Bench {
  readonly #model: NativeModel;
  readonly #sae: NativeSae;
  readonly #threads: number;

  constructor(addon: NativeAddon, model: NativeModel, threads: number) {
    const width = model.info.embeddingWidth;
    this.#model = model;
    this.#threads = threads;
    this.#sae = addon.loadSae({
      embeddingWidth: width,
      featureCount: SAE_FEATURES,
      encoderColumns: Float32Array.from({ length: width * SAE_FEATURES }, (_, i) => Math.sin(i)),
      encoderBias: new Float32Array(SAE_FEATURES),
      decoderBias: new Float32Array(width),
      applyDecoderBiasToInput: false,
      activation: "relu",
      threshold: new Float32Array(),
    });
  }

  /** Measures `rounds` rounds after one to warm up. */
  async measure(streams: number, mode: Mode, rounds: number): Promise<Measured> {
    let pending = 0;
    let done: (() => void) | null = null;
    const context = await this.#model.createContext({
      sequenceCount: streams,
      cellCount: CELLS_PER_STREAM * streams,
      batchTokens: BATCH_TOKENS,
      threads: this.#threads,
      flashAttention: true,
      kvType: "f16",
      // The bare loop fills its batch with prompts, so the core does too: this compares loops, not policies.
      boundsPrefill: false,
      onStep: ({ finished }) => {
        for (const { errorMessage } of finished) {
          if (errorMessage !== null) throw new Error(errorMessage);
          pending--;
        }
        if (finished.length > 0 && pending === 0) done?.();
      },
    });
    const rates: number[] = [];
    let cpuBefore = process.cpuUsage();
    for (let round = 0; round <= rounds; round++) {
      if (round === 1) cpuBefore = process.cpuUsage();
      const jobs = Array.from({ length: streams }, (_, i) => this.#job(round * streams + i + 1, i, mode));
      pending = streams;
      const ended = new Promise<void>((finish) => {
        done = finish;
      });
      // The bare loop begins with an empty cache too; left cells would lengthen every attention row.
      for (let sequenceId = 0; sequenceId < streams; sequenceId++) context.clearSequence(sequenceId);
      const startMs = performance.now();
      for (const job of jobs) context.submit(job);
      await ended;
      const seconds = (performance.now() - startMs) / 1000;
      if (round > 0) rates.push((streams * TOKENS_PER_STREAM) / seconds);
    }
    const { user, system } = process.cpuUsage(cpuBefore);
    await context.dispose();
    return { rate: median(rates), cpuUs: (user + system) / (rounds * streams * TOKENS_PER_STREAM) };
  }

  #job(jobId: number, sequenceId: number, mode: Mode): GenerationJob {
    const everywhere = { layer: HOOKED_LAYER, fromPosition: 0, toPosition: -1 };
    const vector = new Float32Array(this.#model.info.embeddingWidth).fill(0.01);
    const sensing: SensingPlan = {
      sae: this.#sae,
      ...everywhere,
      readPoint: "pre_steering",
      features: Int32Array.from({ length: SENSED_FEATURES }, (_, i) => i * 7),
      topK: 0,
    };
    return {
      jobId,
      sequenceId,
      copyFromSequenceId: sequenceId,
      keepTokens: 0,
      tokens: this.#model.tokenize(PROMPT, true, true),
      maxTokens: TOKENS_PER_STREAM,
      ignoreEndOfGeneration: true,
      stopStrings: [],
      sampler: {
        seed: sequenceId,
        temperature: 0.8,
        topK: 40,
        topP: 0.95,
        minP: 0,
        repeatPenalty: 1,
        frequencyPenalty: 0,
        presencePenalty: 0,
        penaltyWindow: 0,
        logitBias: [],
        allowedTokens: new Int32Array(0),
        grammar: "",
        grammarLazy: false,
        grammarTriggers: "",
      },
      logprobs: -1,
      promptLogprobs: false,
      renderedTokens: new Int32Array(0),
      edits: mode === "additive" ? [{ ...everywhere, vector }] : [],
      sensing: mode === "sensing" ? [sensing] : [],
      capture: [],
    };
  }
}

async function main(): Promise<void> {
  if (flags.help) {
    console.log(
      "usage: node dist/test/bench/engine-native.js [--json] [--model FILE.gguf] [--threads N] [--rounds N] [--streams 1,4,16]",
    );
    return;
  }
  const threads = Number(flags.threads);
  const rounds = Number(flags.rounds);
  const libraries = await librariesDirectory("cpu");
  const baseline = buildBaseline(libraries);
  const addon = await loadNative({ variant: "cpu", onLog: () => undefined });
  const model = await addon.loadModel({ path: flags.model, gpuLayers: 0, useMmap: true, tensorSplit: [] });
  const bench = new Bench(addon, model, threads);
  const rows: Record<string, number>[] = [];
  for (const streams of flags.streams.split(",").map(Number)) {
    const base: Measured[] = [];
    const native = new Map<Mode, Measured[]>(MODES.map((mode) => [mode, []]));
    for (let pass = 0; pass < rounds; pass++) {
      const args = [flags.model, libraries, streams, threads, TOKENS_PER_STREAM, ROUNDS_PER_PASS];
      base.push(runBaseline(baseline, args));
      for (const mode of MODES) native.get(mode)?.push(await bench.measure(streams, mode, ROUNDS_PER_PASS));
    }
    const yardstick = medianOf(base);
    const row: Record<string, number> = { streams, baseline: yardstick.rate, baseline_cpu_us: yardstick.cpuUs };
    const cells: string[] = [];
    for (const [mode, all] of native) {
      const { rate, cpuUs } = medianOf(all);
      const ratio = rate / yardstick.rate;
      const cpuRatio = yardstick.cpuUs / cpuUs;
      Object.assign(row, { [mode]: rate, [`${mode}_ratio`]: ratio, [`${mode}_cpu_ratio`]: cpuRatio });
      cells.push(`${mode} ${rate.toFixed(0)} (${ratio.toFixed(2)}, by CPU time ${cpuRatio.toFixed(2)})`);
    }
    rows.push(row);
    if (!flags.json) console.log(`${streams} streams: baseline ${yardstick.rate.toFixed(0)}, ${cells.join(", ")}`);
  }
  if (flags.json) console.log(JSON.stringify({ model: flags.model, threads, rows }));
  await model.dispose();
}

await main();
