import { createHash } from "node:crypto";
import { ApiError } from "../../../shared/errors/api-error.ts";
import { streamOptionsFault } from "../../../shared/openai/sampling.ts";
import type { ActivationRequests } from "../../../shared/steering/activations.ts";
import type { Steering } from "../../../shared/steering/steering-set.ts";
import type { SamplerOptions } from "../../native/binding.ts";
import { planSensingSet, type SensingSet } from "../../sae/sensing-plan.ts";
import { planSteering, type SteeringPlan } from "../../sae/steering-plan.ts";
import type { EngineModel, LoadedSae } from "../engine-model.ts";
import type { GenerationTask, RequestLabel } from "../loop/generation-task.ts";
import { nativeEdits, nativeSensing } from "../sae-jobs.ts";
import { specialTokensOf } from "../special-tokens.ts";
import { boundCompletionTokens } from "./token-limit.ts";

/** A chat or completion request, fully checked: what to compute and how to tell it. */
export interface GenerationPlan {
  readonly kind: "chat" | "completion";
  readonly prompt: Int32Array;
  readonly maxTokens: number;
  readonly stopStrings: readonly string[];
  readonly ignoreEndOfGeneration: boolean;
  readonly sampler: SamplerOptions;
  /** Alternatives per token; -1 reports no log-probabilities. */
  readonly logprobs: number;
  readonly steering: SteeringPlan<LoadedSae>;
  readonly sensing: SensingSet<LoadedSae> | null;
  readonly stream: boolean;
  readonly includeUsage: boolean;
  readonly ignoredFields: readonly string[];
}

/** What both kinds of request have in common once their prompt is known. */
export interface PlanInput extends Omit<
  GenerationPlan,
  "maxTokens" | "steering" | "sensing" | "stream" | "includeUsage" | "ignoreEndOfGeneration"
> {
  readonly askedTokens: number | null;
  /** Member that holds the prompt, for refusals. */
  readonly promptParam: string;
  readonly request: {
    readonly n?: number | null | undefined;
    readonly stream?: boolean | null | undefined;
    readonly stream_options?: { readonly include_usage?: boolean | null | undefined } | null | undefined;
    readonly ignore_eos?: boolean | null | undefined;
    readonly steering?: Steering | null | undefined;
    readonly return_sae_activations?: ActivationRequests | null | undefined;
  };
}

/** Refuses what one context cannot answer; everything here happens before the first byte of an answer. */
export function planGeneration(input: PlanInput, model: EngineModel): GenerationPlan {
  const { request, askedTokens, promptParam, ...rest } = input;
  if ((request.n ?? 1) !== 1) {
    throw new ApiError("invalid_value", { message: "'n': only 1 is supported.", param: "n" });
  }
  if (streamOptionsFault(request)) {
    throw new ApiError("invalid_value", {
      message: "'stream_options' is only allowed with 'stream': true.",
      param: "stream_options",
    });
  }
  const promptTokens = rest.prompt.length;
  const prompt = { tokens: promptTokens, param: promptParam };
  const maxTokens = boundCompletionTokens(askedTokens, prompt, model.contextLength);
  const { layerCount } = model.native.info;
  return {
    ...rest,
    maxTokens,
    ignoreEndOfGeneration: request.ignore_eos ?? false,
    steering: planSteering(
      request.steering,
      model.saes,
      { promptTokens, maxTokens, specialTokens: () => specialTokensOf(model.native) },
      sha256Hex,
    ),
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

/** The plan as a task for the loop. `salt` keeps the prefixes of different projects apart. */
export function taskOf(plan: GenerationPlan, label: RequestLabel | null, salt: string): GenerationTask {
  const { sensing } = plan;
  return {
    label,
    labels: { ...plan.steering.labels, salt, tokens: plan.prompt },
    reuseLimit: sensing?.fromPosition ?? plan.prompt.length,
    maxTokens: plan.maxTokens,
    job: {
      ignoreEndOfGeneration: plan.ignoreEndOfGeneration,
      stopStrings: plan.stopStrings,
      sampler: plan.sampler,
      logprobs: plan.logprobs,
      promptLogprobs: false,
      renderedTokens: new Int32Array(0),
      edits: nativeEdits(plan.steering),
      sensing: sensing?.plans.map(nativeSensing) ?? [],
      capture: [],
    },
  };
}

const sha256Hex = (text: string): string => createHash("sha256").update(text, "utf8").digest("hex");
