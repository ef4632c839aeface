import { fileURLToPath } from "node:url";
import type {
  ContextCounters,
  ContextOptions,
  GenerationJob,
  JobFinished,
  NativeAddon,
  NativeContext,
  NativeModel,
  PromptLogprobs,
  SamplerOptions,
  StepEvents,
  TokenLogprobs,
} from "../../backend/native/binding.ts";
import { STEP_RECORD_WORDS } from "../../backend/native/binding.ts";
import { loadNative, nativeErrorCode } from "../../backend/native/load.ts";

/** Files of the repository that native tests read; this file runs from the sources. */
export function repositoryFile(path: string): string {
  return fileURLToPath(new URL(`../../${path}`, import.meta.url));
}

export const DEMO_Q8 = repositoryFile("backend/demo/demo-storyteller-1m.q8_0.gguf");
export const DEMO_F32 = repositoryFile("test/native/fixtures/demo-storyteller-1m.f32.gguf");

let addon: Promise<NativeAddon> | null = null;

/** "Debug" runs the tests on the sanitized build; it needs libasan preloaded. */
const BUILD = process.env["STEERAGE_NATIVE_BUILD"] ?? "Release";

/** The addon on the CPU libraries, loaded once per test process. */
export function nativeAddon(): Promise<NativeAddon> {
  const addonPath = repositoryFile(`backend/native/build/${BUILD}/steerage_native.node`);
  addon ??= loadNative({ variant: "cpu", onLog: () => undefined, addonPath });
  return addon;
}

export async function openModel(path: string): Promise<NativeModel> {
  const native = await nativeAddon();
  return native.loadModel({ path, gpuLayers: 0, useMmap: true, tensorSplit: [] });
}

/** Code of the error that an action throws or rejects with, "no error" when it does neither. */
export async function codeOf(action: () => unknown): Promise<string | null> {
  try {
    await action();
    return "no error";
  } catch (error) {
    return nativeErrorCode(error);
  }
}

export const GREEDY: SamplerOptions = {
  seed: 0,
  temperature: 0,
  topK: 0,
  topP: 1,
  minP: 0,
  repeatPenalty: 1,
  frequencyPenalty: 0,
  presencePenalty: 0,
  penaltyWindow: 64,
  logitBias: [],
  allowedTokens: new Int32Array(0),
  grammar: "",
  grammarLazy: false,
  grammarTriggers: "",
};

/** Everything that the events told about one job. */
export interface JobOutcome {
  readonly tokens: number[];
  readonly tokenPositions: number[];
  readonly text: Buffer;
  readonly logprobs: TokenLogprobs[];
  readonly promptLogprobs: PromptLogprobs[];
  readonly sensed: Map<string, Map<number, number>>;
  /** Captured rows by "plan:position". */
  readonly captured: Map<string, Float32Array>;
  readonly promptProgress: number[];
  readonly finished: JobFinished;
}

interface OpenJob {
  readonly tokens: number[];
  readonly tokenPositions: number[];
  readonly pieces: Buffer[];
  readonly logprobs: TokenLogprobs[];
  readonly promptLogprobs: PromptLogprobs[];
  readonly sensed: Map<string, Map<number, number>>;
  readonly captured: Map<string, Float32Array>;
  readonly promptProgress: number[];
  readonly resolve: (outcome: JobOutcome) => void;
}

export type JobWish = Partial<GenerationJob> & { tokens: Int32Array };

/** Which layout of cells contexts get that ask for none; `streams.test.ts` runs suites a second time with streams. */
export const layout = { streams: false };

/** A context with its events sorted by job, so that a test can await one job's whole story. */
export class NativeSession {
  readonly context: NativeContext;
  readonly #jobs: Map<number, OpenJob>;
  #nextJobId = 1;
  /** Called with the raw events of every step, before they are sorted. */
  onStep: (events: StepEvents) => void = () => undefined;

  private constructor(context: NativeContext, jobs: Map<number, OpenJob>) {
    this.context = context;
    this.#jobs = jobs;
  }

  static async open(model: NativeModel, options: Partial<ContextOptions> = {}): Promise<NativeSession> {
    const jobs = new Map<number, OpenJob>();
    const holder: { session: NativeSession | null } = { session: null };
    const context = await model.createContext({
      sequenceCount: 8,
      cellCount: 4096,
      batchTokens: 256,
      // Test files run side by side: with more, the compute threads of one wait for cores that another spins on.
      threads: 1,
      flashAttention: true,
      kvType: "f16",
      kvStreams: layout.streams,
      onStep: (events) => {
        holder.session?.onStep(events);
        sortEvents(events, jobs);
      },
      ...options,
    });
    const session = new NativeSession(context, jobs);
    holder.session = session;
    return session;
  }

  /** Submits a job on `sequenceId` (default 0) and gives its id at once and its outcome when it ends. */
  start(wish: JobWish): { jobId: number; outcome: Promise<JobOutcome> } {
    const jobId = this.#nextJobId++;
    const sequenceId = wish.sequenceId ?? 0;
    const outcome = new Promise<JobOutcome>((resolve) => {
      this.#jobs.set(jobId, {
        tokens: [],
        tokenPositions: [],
        pieces: [],
        logprobs: [],
        promptLogprobs: [],
        sensed: new Map(),
        captured: new Map(),
        promptProgress: [],
        resolve,
      });
    });
    this.context.submit({
      copyFromSequenceId: sequenceId,
      keepTokens: 0,
      maxTokens: 16,
      ignoreEndOfGeneration: false,
      stopStrings: [],
      sampler: GREEDY,
      logprobs: -1,
      promptLogprobs: false,
      renderedTokens: new Int32Array(0),
      edits: [],
      sensing: [],
      capture: [],
      ...wish,
      jobId,
      sequenceId,
    });
    return { jobId, outcome };
  }

  run(wish: JobWish): Promise<JobOutcome> {
    return this.start(wish).outcome;
  }

  counters(): ContextCounters {
    return this.context.counters();
  }
}

function sortEvents(events: StepEvents, jobs: Map<number, OpenJob>): void {
  const { records, text } = events;
  for (let at = 0; at < records.length; at += STEP_RECORD_WORDS) {
    const [jobId = 0, token = 0, textStart = 0, textEnd = 0, position = 0] = records.subarray(at, at + 5);
    const job = jobs.get(jobId);
    job?.tokens.push(token);
    job?.tokenPositions.push(position);
    job?.pieces.push(Buffer.from(text.subarray(textStart, textEnd)));
  }
  for (const progress of events.prompts) jobs.get(progress.jobId)?.promptProgress.push(progress.computedTokens);
  for (const entry of events.logprobs) jobs.get(entry.jobId)?.logprobs.push(entry);
  for (const entry of events.promptLogprobs) jobs.get(entry.jobId)?.promptLogprobs.push(entry);
  for (const rows of events.sensed) {
    let pair = 0;
    for (const [row, position] of rows.positions.entries()) {
      const active = new Map<number, number>();
      const end = pair + (rows.counts[row] ?? 0);
      for (; pair < end; pair++) active.set(rows.indices[pair] ?? -1, rows.values[pair] ?? Number.NaN);
      jobs.get(rows.jobId)?.sensed.set(`${rows.planIndex}:${position}`, active);
    }
  }
  for (const rows of events.captured) {
    const width = rows.rows.length / rows.positions.length;
    for (const [row, position] of rows.positions.entries()) {
      jobs
        .get(rows.jobId)
        ?.captured.set(`${rows.planIndex}:${position}`, rows.rows.slice(row * width, (row + 1) * width));
    }
  }
  for (const finished of events.finished) {
    const job = jobs.get(finished.jobId);
    if (job === undefined) continue;
    jobs.delete(finished.jobId);
    const { resolve, pieces, ...seen } = job;
    resolve({ ...seen, text: Buffer.concat(pieces), finished });
  }
}
