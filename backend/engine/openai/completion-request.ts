import { ApiError } from "../../../shared/errors/api-error.ts";
import { apiErrorOfZod } from "../../../shared/errors/zod-error.ts";
import type { EngineModel } from "../engine-model.ts";
import { withoutSecondBos } from "./chat-prompt.ts";
import { applyFieldPolicy } from "./field-policy.ts";
import { COMPLETION_FIELDS } from "./field-tables.ts";
import { planGeneration, type GenerationPlan } from "./generation-plan.ts";
import type { RequestBody } from "./request-body.ts";
import { engineCompletionSchema, type EngineCompletionRequest } from "./request-schemas.ts";
import { samplerOf, stopStringsOf } from "./sampling.ts";

/**
 * POST /v1/completions, from the caller's JSON to a plan. The caller writes the whole prompt, so control tokens are
 * read from its text; the begin-of-text token is added where the model wants one and the text does not bring it.
 */
export function readCompletionRequest(body: RequestBody, model: EngineModel, strict: boolean): GenerationPlan {
  const read = engineCompletionSchema.safeParse(body);
  if (!read.success) throw apiErrorOfZod(read.error);
  const request = read.data;
  const ignoredFields = applyFieldPolicy(body, COMPLETION_FIELDS, strict);
  return planGeneration(
    {
      kind: "completion",
      request,
      prompt: promptTokens(request.prompt, model),
      promptParam: "prompt",
      askedTokens: request.max_tokens ?? null,
      stopStrings: stopStringsOf(request.stop),
      sampler: samplerOf(request, {
        vocabularySize: model.native.info.vocabularySize,
        randomSeed: model.randomSeed,
        grammar: "",
      }),
      logprobs: request.logprobs ?? -1,
      ignoredFields,
    },
    model,
  );
}

function promptTokens(prompt: EngineCompletionRequest["prompt"], model: EngineModel): Int32Array {
  const one = onlyPrompt(prompt);
  const { info } = model.native;
  if (typeof one === "string") {
    const tokens = withoutSecondBos(model.native.tokenize(one, true, true), info.bosToken);
    if (tokens.length > 0) return tokens;
    throw new ApiError("invalid_value", { message: "'prompt' must not be empty.", param: "prompt" });
  }
  return checkedTokenIds(one, info.vocabularySize, "prompt");
}

function onlyPrompt(prompt: EngineCompletionRequest["prompt"]): string | readonly number[] {
  if (typeof prompt === "string") return prompt;
  const [first] = prompt;
  if (typeof first === "number") return prompt.filter((entry) => typeof entry === "number");
  if (prompt.length === 1 && first !== undefined) return first;
  throw new ApiError("invalid_value", {
    message: "'prompt': one prompt per request; send several requests for several prompts.",
    param: "prompt",
  });
}

/** Token ids of the caller's, each of which must stand in the vocabulary. */
export function checkedTokenIds(ids: readonly number[], vocabularySize: number, param: string): Int32Array {
  const place = ids.findIndex((id) => id >= vocabularySize);
  if (place < 0) return Int32Array.from(ids);
  throw new ApiError("invalid_value", {
    message: `'${param}[${place}]' is not a token: the vocabulary has ${vocabularySize}.`,
    param: `${param}[${place}]`,
  });
}
