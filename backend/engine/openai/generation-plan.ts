import { createHash } from "node:crypto";
import { ApiError } from "../../../shared/errors/api-error.ts";
import { MAX_SEED } from "../../../shared/openai/limits.ts";
import { streamOptionsFault } from "../../../shared/openai/sampling.ts";
import type { ActivationRequests } from "../../../shared/steering/activations.ts";
import type { Intensity } from "../../../shared/steering/profile.ts";
import type { Steering } from "../../../shared/steering/steering-set.ts";
import type { SamplerOptions } from "../../native/binding.ts";
import { planSensingSet, type SensingSet } from "../../sae/sensing-plan.ts";
import { ofProfile, planSteering, type SteeringPlan } from "../../sae/steering-plan.ts";
import type { EngineModel, LoadedSae } from "../engine-model.ts";
import type { GenerationTask, RequestLabel } from "../loop/generation-task.ts";
import { askedSteering, blamingProfile } from "../profiles.ts";
import { nativeEdits, nativeSensing } from "../sae-jobs.ts";
import { specialTokensOf } from "../special-tokens.ts";
import type { AnswerParser } from "../tools/message-tracker.ts";
import { boundCompletionTokens } from "./token-limit.ts";

/** A chat or completion request, fully checked: what to compute and how to tell it. */
export interface GenerationPlan {
  readonly kind: "chat" | "completion";
  /** One, but for completions with several prompts. */
  readonly prompts: readonly PlannedPrompt[];
  /** Choices for every prompt. */
  readonly choicesPerPrompt: number;
  readonly stopStrings: readonly string[];
  readonly ignoreEndOfGeneration: boolean;
  readonly sampler: SamplerOptions;
  /** Alternatives per token; -1 reports no log-probabilities. */
  readonly logprobs: number;
  /** Those of the prompt too, for its echo. */
  readonly promptLogprobs: boolean;
  /** Control tokens whose text the parser needs. */
  readonly renderedTokens: Int32Array;
  /** Null when the text is the content. */
  readonly parser: AnswerParser | null;
  /** The parser tells reasoning apart, so its tokens are counted. */
  readonly marksReasoning: boolean;
  readonly sensing: SensingSet<LoadedSae> | null;
  readonly stream: boolean;
  readonly includeUsage: boolean;
  readonly ignoredFields: readonly string[];
}

export interface PlannedPrompt {
  readonly tokens: Int32Array;
  readonly maxTokens: number;
  /** What the answer repeats before it goes on, or null. */
  readonly echo: PromptEcho | null;
  /** Positions such as "completion" are those of this prompt. */
  readonly steering: SteeringPlan<LoadedSae>;
}
export interface PromptEcho {
  readonly text: string;
  /** First token that is part of the text: a begin-of-text token that was added is not. */
  readonly fromPosition: number;
}

/** What both kinds of request have in common once their prompts are known. */
export interface PlanInput extends Omit<
  GenerationPlan,
  "prompts" | "choicesPerPrompt" | "promptLogprobs" | "sensing" | "stream" | "includeUsage" | "ignoreEndOfGeneration"
> {
  readonly prompts: readonly Pick<PlannedPrompt, "tokens" | "echo">[];
  readonly askedTokens: number | null;
  /** Member that holds a prompt, for refusals. */
  readonly promptParam: (place: number) => string;
  readonly request: {
    readonly n?: number | null | undefined;
    readonly stream?: boolean | null | undefined;
    readonly stream_options?: { readonly include_usage?: boolean | null | undefined } | null | undefined;
    readonly ignore_eos?: boolean | null | undefined;
    readonly steering?: Steering | null | undefined;
    readonly profile?: string | null | undefined;
    readonly steering_intensity?: Intensity | null | undefined;
    readonly return_sae_activations?: ActivationRequests | null | undefined;
  };
}

/** As many as OpenAI takes for `n`. */
const MAX_CHOICES = 128;

/** Refuses what one context cannot answer; everything here happens before the first byte of an answer. */
export function planGeneration(input: PlanInput, model: EngineModel): GenerationPlan {
  const { request, askedTokens, promptParam, ...rest } = input;
  const choicesPerPrompt = request.n ?? 1;
  checkChoices(request, rest.prompts.length * choicesPerPrompt);
  if (streamOptionsFault(request)) {
    throw new ApiError("invalid_value", {
      message: "'stream_options' is only allowed with 'stream': true.",
      param: "stream_options",
    });
  }
  const { steering, profile } = askedSteering(request, model.profiles);
  const prompts = rest.prompts.map((prompt, place) => {
    const promptTokens = prompt.tokens.length;
    const counted = { tokens: promptTokens, param: promptParam(place) };
    const maxTokens = boundCompletionTokens(askedTokens, counted, model.contextLength);
    const scope = { promptTokens, maxTokens, specialTokens: () => specialTokensOf(model.native) };
    const plan = blamingProfile(profile, () => planSteering(steering, model.saes, scope, sha256Hex));
    return { ...prompt, maxTokens, steering: profile === null ? plan : ofProfile(plan, profile) };
  });
  const [first] = prompts;
  const promptTokens = first?.tokens.length ?? 0;
  const maxTokens = first?.maxTokens ?? 0;
  const { layerCount } = model.native.info;
  return {
    ...rest,
    prompts,
    choicesPerPrompt,
    promptLogprobs: rest.logprobs >= 0 && prompts.some(({ echo }) => echo !== null),
    ignoreEndOfGeneration: request.ignore_eos ?? false,
    sensing: planSensingSet(request.return_sae_activations, model.saes, {
      promptTokens,
      maxTokens,
      layerCount,
      streams: request.stream ?? false,
    }),
    stream: request.stream ?? false,
    includeUsage: request.stream_options?.include_usage ?? false,
  };
}

function checkChoices(request: PlanInput["request"], choices: number): void {
  if (choices > MAX_CHOICES) {
    throw new ApiError("invalid_value", { message: `At most ${MAX_CHOICES} choices in one answer.`, param: "n" });
  }
  if (choices > 1 && request.return_sae_activations) {
    const message = "'n': activations can be returned for one choice only.";
    throw new ApiError("invalid_value", { message, param: "n" });
  }
}

/** For whom a task is done. `salt` keeps the prefixes of different projects apart. */
export interface TaskOwner {
  readonly label: RequestLabel | null;
  readonly salt: string;
}

/** One choice of the plan as a task for the loop; `choice` counts over all prompts, and seeds count with it. */
export function taskOf(plan: GenerationPlan, prompt: PlannedPrompt, choice: number, owner: TaskOwner): GenerationTask {
  const { sensing } = plan;
  return {
    label: owner.label,
    labels: { ...prompt.steering.labels, salt: owner.salt, tokens: prompt.tokens },
    countsPrompt: choice % plan.choicesPerPrompt === 0,
    reuseLimit: plan.promptLogprobs ? 0 : (sensing?.fromPosition ?? prompt.tokens.length),
    maxTokens: prompt.maxTokens,
    job: {
      ignoreEndOfGeneration: plan.ignoreEndOfGeneration,
      stopStrings: plan.stopStrings,
      sampler: choice === 0 ? plan.sampler : { ...plan.sampler, seed: (plan.sampler.seed + choice) % (MAX_SEED + 1) },
      logprobs: plan.logprobs,
      promptLogprobs: plan.promptLogprobs,
      renderedTokens: plan.renderedTokens,
      edits: nativeEdits(prompt.steering),
      sensing: sensing?.plans.map(nativeSensing) ?? [],
      capture: [],
    },
  };
}

const sha256Hex = (text: string): string => createHash("sha256").update(text, "utf8").digest("hex");
