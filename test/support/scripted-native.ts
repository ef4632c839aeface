import { z } from "zod";
import type {
  AppliedChat,
  ContextOptions,
  FinishReason,
  GenerationJob,
  JobFinished,
  ModelInfo,
  NativeAddon,
  NativeChat,
  NativeContext,
  NativeEmbedder,
  NativeErrorCode,
  NativeModel,
  NativeSae,
  PromptLogprobs,
  PromptProgress,
  SensedRows,
  StepEvents,
  TokenLogprobs,
} from "../../backend/native/binding.ts";
import { NATIVE_INTERFACE_VERSION } from "../../backend/native/binding.ts";

/** Tokens of the scripted vocabulary: every byte is one, and four control tokens follow. */
export const BOS = 256;
export const EOS = 257;
const CONTROL = new Map([
  ["<s>", BOS],
  ["</s>", EOS],
  ["<|im_start|>", 258],
  ["<|im_end|>", 259],
]);
export const VOCABULARY_SIZE = 260;
export const WIDTH = 4;

/** An error as the native core throws it. */
export function nativeError(code: NativeErrorCode, message: string): Error {
  return Object.assign(new Error(message), { code });
}

export function bytesOf(text: string): Int32Array {
  return Int32Array.from(new TextEncoder().encode(text));
}

/** The tokens with which a job is answered. After the last one the model ends by itself. */
export type Reply = (job: GenerationJob) => readonly number[];

interface ScriptedJob {
  readonly job: GenerationJob;
  readonly reply: readonly number[];
  readonly bytes: number[];
  sampled: number;
  cancelled: boolean;
}

interface OpenEvents {
  readonly prompts: PromptProgress[];
  readonly logprobs: TokenLogprobs[];
  readonly promptLogprobs: PromptLogprobs[];
  readonly sensed: SensedRows[];
  readonly finished: JobFinished[];
}

/** A context that answers from a script, one token a job and step. */
export class ScriptedContext implements NativeContext {
  hookRefusal: string | null = null;
  readonly submitted: GenerationJob[] = [];
  readonly cleared: number[] = [];
  /** Steps by itself; otherwise a test calls `step`. */
  auto = false;
  reply: Reply = () => [...bytesOf("ok"), EOS];
  /** The next job that steps fails with this. */
  failNext: NativeErrorCode | null = null;
  disposed = false;
  /** The cells to keep turn out to be gone, as a sliding window leaves them: the whole prompt is computed. */
  losesKeptCells = false;
  readonly #onStep: (events: StepEvents) => void;
  readonly #running = new Map<number, ScriptedJob>();

  constructor(onStep: (events: StepEvents) => void) {
    this.#onStep = onStep;
  }

  submit(job: GenerationJob): void {
    this.submitted.push(job);
    this.#running.set(job.jobId, { job, reply: this.reply(job), bytes: [], sampled: 0, cancelled: false });
    this.#wake();
  }
  cancel(jobId: number): void {
    const running = this.#running.get(jobId);
    if (running !== undefined) running.cancelled = true;
    this.#wake();
  }
  #toCompute({ tokens, keepTokens }: GenerationJob): number {
    return this.losesKeptCells ? tokens.length : tokens.length - keepTokens;
  }
  clearSequence(sequenceId: number): void {
    this.cleared.push(sequenceId);
  }
  dispose(): Promise<void> {
    this.disposed = true;
    return Promise.resolve();
  }
  counters() {
    return {
      steps: 0,
      promptTokens: 0,
      completionTokens: 0,
      ownershipChecks: 0,
      hookCalls: 0,
      draftedTokens: 0,
      acceptedTokens: 0,
      draftModelTokens: 0,
    };
  }

  #wake(): void {
    if (this.auto) setImmediate(() => this.step());
  }

  step(): void {
    if (this.#running.size === 0) return;
    const records: number[] = [];
    const text: number[] = [];
    const lists: OpenEvents = { prompts: [], logprobs: [], promptLogprobs: [], sensed: [], finished: [] };
    for (const running of this.#running.values()) {
      const { job } = running;
      const end = (
        reason: FinishReason,
        stopIndex = -1,
        textEndBytes = -1,
        errorCode: NativeErrorCode | null = null,
      ) => {
        this.#running.delete(job.jobId);
        lists.finished.push({
          jobId: job.jobId,
          reason,
          stopIndex,
          textEndBytes,
          computedPromptTokens: running.sampled > 0 ? this.#toCompute(job) : 0,
          computedCompletionTokens: running.sampled,
          editedRows: Int32Array.from(job.edits, () => this.#toCompute(job) + running.sampled - 1),
          errorCode,
          errorMessage: errorCode === null ? null : "scripted failure",
        });
      };
      if (running.cancelled) {
        end("cancelled");
        continue;
      }
      if (this.failNext !== null) {
        end("failed", -1, -1, this.failNext);
        this.failNext = null;
        continue;
      }
      if (running.sampled === 0) {
        lists.prompts.push({ jobId: job.jobId, computedTokens: this.#toCompute(job) });
        if (job.promptLogprobs) lists.promptLogprobs.push(...promptLogprobs(job));
      }
      lists.sensed.push(...sensedRows(running));
      const token = running.reply[running.sampled] ?? EOS;
      running.sampled += 1;
      const start = text.length;
      if (token < 256) {
        text.push(token);
        running.bytes.push(token);
      }
      records.push(job.jobId, token, start, text.length, job.tokens.length + running.sampled - 1);
      if (job.logprobs >= 0) {
        const top = Array.from({ length: job.logprobs }, (_, place) => (token + place) % VOCABULARY_SIZE);
        lists.logprobs.push({
          jobId: job.jobId,
          logprob: -0.5,
          topTokens: Int32Array.from(top),
          topLogprobs: Float32Array.from(top, (_, place) => (place === 3 ? -Infinity : -0.5 - place)),
        });
      }
      const stop = firstStop(running);
      if (token === EOS && !job.ignoreEndOfGeneration) end("end_of_generation");
      else if (stop !== null) end("stop_string", stop.index, stop.at);
      else if (running.sampled >= job.maxTokens) end("length");
    }
    this.#onStep({ ...lists, captured: [], records: Int32Array.from(records), text: Uint8Array.from(text) });
    if (this.#running.size > 0) this.#wake();
  }
}

/** Every prompt token from the second on has the same chances. */
function promptLogprobs(job: GenerationJob): PromptLogprobs[] {
  const topTokens = new Int32Array(job.logprobs).fill(65);
  const topLogprobs = new Float32Array(job.logprobs).fill(-1);
  return [...job.tokens.keys()]
    .slice(job.keepTokens + 1)
    .map((position) => ({ jobId: job.jobId, position, logprob: -2, topTokens, topLogprobs }));
}

function firstStop({ job, bytes }: ScriptedJob): { index: number; at: number } | null {
  const answer = Buffer.from(bytes);
  let best: { index: number; at: number } | null = null;
  for (const [index, stop] of job.stopStrings.entries()) {
    const at = answer.indexOf(stop);
    if (at >= 0 && (best === null || at < best.at)) best = { index, at };
  }
  return best;
}

/** Row p has feature p % 4 with value p + 1; features that were asked for by index are silent otherwise. */
function sensedRows({ job, sampled }: ScriptedJob): SensedRows[] {
  const first = sampled === 0 ? job.keepTokens : job.tokens.length + sampled - 1;
  const last = sampled === 0 ? job.tokens.length - 1 : first;
  return job.sensing.flatMap((plan, planIndex) => {
    const positions: number[] = [];
    for (let at = first; at <= last; at += 1) {
      if (at >= plan.fromPosition && (plan.toPosition < 0 || at < plan.toPosition)) positions.push(at);
    }
    if (positions.length === 0) return [];
    return [
      {
        jobId: job.jobId,
        planIndex,
        positions: Int32Array.from(positions),
        tokens: Int32Array.from(positions, (at) => job.tokens[at] ?? 0),
        counts: Int32Array.from(positions, () => 1),
        indices: Int32Array.from(positions, (at) => at % 4),
        values: Float32Array.from(positions, (at) => at + 1),
      },
    ];
  });
}

const chatSchema = z.object({ messages: z.array(z.object({ role: z.string(), content: z.string() })) });

const CALL_START = "<tool_call>\n";
const CALL_END = "}\n</tool_call>";

/** Text that still grows, without what may be the beginning of a mark. */
function withoutBegun(text: string, mark: string): string {
  for (let length = Math.min(text.length, mark.length - 1); length > 0; length -= 1) {
    if (mark.startsWith(text.slice(-length))) return text.slice(0, -length);
  }
  return text;
}

/** ChatML over the byte vocabulary. A message with the text "REFUSE" is one that this template does not take. */
class ScriptedChat implements NativeChat {
  readonly #thinks: boolean;

  constructor(thinks: boolean) {
    this.#thinks = thinks;
  }

  apply(request: string): AppliedChat {
    const { messages } = chatSchema.parse(JSON.parse(request));
    if (messages.some(({ content }) => content === "REFUSE")) {
      throw nativeError("template_failed", "roles must alternate");
    }
    const turns = messages.map(({ role, content }) => `<|im_start|>${role}\n${content}<|im_end|>\n`).join("");
    return {
      prompt: `<s>${turns}<|im_start|>assistant\n`,
      grammar: "",
      grammarLazy: false,
      grammarTriggers: "",
      preservedTokens: [],
      additionalStops: [],
      parser: "",
      supportsThinking: this.#thinks,
    };
  }
  /** Calls as the fallback format writes them, and reasoning between <think> marks. */
  parse(text: string, partial: boolean): string {
    const thought = /^<think>(.*?)(<\/think>|$)/su.exec(text);
    const rest = text.slice(thought?.[0].length ?? 0);
    const [content = "", ...calls] = rest.split(CALL_START);
    const toolCalls = calls.map((call) => {
      const read = /^\{"name": ?"(\w+)", ?"arguments": ?(.*?)(\}\n<\/tool_call>\n?|$)/su.exec(call);
      if (read === null || (!partial && read[3] === "")) throw nativeError("template_failed", "unparsed");
      return {
        type: "function",
        function: { name: read[1], arguments: read[3] === "" ? withoutBegun(read[2] ?? "", CALL_END) : read[2] },
      };
    });
    return JSON.stringify({
      role: "assistant",
      content: partial && calls.length === 0 ? withoutBegun(content, CALL_START) : content,
      ...(thought === null ? {} : { reasoning_content: thought[1] }),
      ...(toolCalls.length === 0 ? {} : { tool_calls: toolCalls }),
    });
  }
}

export class ScriptedModel implements NativeModel {
  readonly info: ModelInfo;
  context: ScriptedContext | null = null;
  /** Applied to every context that is made. */
  configure: (context: ScriptedContext) => void = () => undefined;
  embedCalls: Int32Array[][] = [];
  /** Cells beyond which there is no memory. */
  largestContext = Number.MAX_SAFE_INTEGER;
  /** Its template marks reasoning. */
  thinks = false;
  disposed = false;

  constructor(info: Partial<ModelInfo> = {}) {
    this.info = {
      architecture: "scripted",
      layerCount: 4,
      embeddingWidth: WIDTH,
      vocabularySize: VOCABULARY_SIZE,
      trainingContextLength: 128,
      slidingWindow: 0,
      recurrent: false,
      hybrid: false,
      parameterCount: 1,
      sizeBytes: 1,
      chatTemplate: "scripted",
      bosToken: BOS,
      eosToken: EOS,
      addsBos: true,
      metadata: {},
      ...info,
    };
  }

  tokenize(text: string, addSpecial: boolean, parseSpecial: boolean): Int32Array {
    const tokens: number[] = addSpecial && this.info.addsBos ? [BOS] : [];
    const pieces = parseSpecial ? text.split(/(<s>|<\/s>|<\|im_start\|>|<\|im_end\|>)/u) : [text];
    for (const piece of pieces) {
      const control = parseSpecial ? CONTROL.get(piece) : undefined;
      if (control === undefined) tokens.push(...bytesOf(piece));
      else tokens.push(control);
    }
    return Int32Array.from(tokens);
  }
  tokenBytes(token: number, renderSpecial: boolean): Uint8Array {
    if (token < 256) return Uint8Array.of(token);
    const text = [...CONTROL].find(([, id]) => id === token)?.[0] ?? "";
    return new TextEncoder().encode(renderSpecial ? text : "");
  }
  isEndOfGeneration(token: number): boolean {
    return token === EOS;
  }
  isControl(token: number): boolean {
    return token >= 256;
  }
  openChat(): NativeChat {
    return new ScriptedChat(this.thinks);
  }
  grammarFromSchema(schemaJson: string): string {
    if (schemaJson.includes("impossible")) throw nativeError("grammar_invalid", "no such type");
    return `root ::= ${schemaJson}`;
  }
  checkGrammar(): void {}
  createContext(options: ContextOptions): Promise<NativeContext> {
    if (options.cellCount > this.largestContext) return Promise.reject(nativeError("out_of_memory", "no room"));
    this.context = new ScriptedContext(options.onStep);
    this.configure(this.context);
    return Promise.resolve(this.context);
  }
  createEmbedder(): Promise<NativeEmbedder> {
    return Promise.resolve({
      embed: (inputs) => {
        this.embedCalls.push([...inputs]);
        return Promise.resolve(inputs.map((input) => Float32Array.of(input.length, 0, 0, input[0] ?? 0)));
      },
      dispose: () => Promise.resolve(),
    });
  }
  dispose(): Promise<void> {
    this.disposed = true;
    return Promise.resolve();
  }
}

export function scriptedAddon(model: ScriptedModel): NativeAddon {
  return {
    interfaceVersion: NATIVE_INTERFACE_VERSION,
    llamaRelease: "scripted",
    initialize: () => undefined,
    loadModel: () => Promise.resolve(model),
    openAccountBoard: () => ({ claim: () => -1, setComputedPrompt: () => undefined, release: () => undefined }),
    loadSae: ({ featureCount, embeddingWidth }): NativeSae => ({
      featureCount,
      embeddingWidth,
      encode: () => new Float32Array(featureCount),
      dispose: () => undefined,
    }),
  };
}
