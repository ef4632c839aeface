import { ApiError } from "../../../shared/errors/api-error.ts";
import { apiErrorOfZod } from "../../../shared/errors/zod-error.ts";
import type { EngineModel } from "../engine-model.ts";
import { UNCONSTRAINED, withoutSecondBos } from "./chat-prompt.ts";
import { applyFieldPolicy } from "./field-policy.ts";
import { COMPLETION_FIELDS } from "./field-tables.ts";
import { planGeneration, type GenerationPlan } from "./generation-plan.ts";
import type { RequestBody } from "./request-body.ts";
import { engineCompletionSchema, type EngineCompletionRequest } from "./request-schemas.ts";
import { checkedGrammar } from "./response-format.ts";
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
  const prompts = promptsOf(request.prompt);
  const several = prompts.length > 1;
  const nameOf = (place: number): string => (several ? `prompt[${place}]` : "prompt");
  return planGeneration(
    {
      kind: "completion",
      request,
      prompts: prompts.map((one, place) => readPrompt(one, request.echo ?? false, nameOf(place), model)),
      promptParam: nameOf,
      askedTokens: request.max_tokens ?? null,
      stopStrings: stopStringsOf(request.stop),
      sampler: samplerOf(request, {
        vocabularySize: model.native.info.vocabularySize,
        randomSeed: model.randomSeed,
        constraint: { ...UNCONSTRAINED, grammar: checkedGrammar(request.grammar, model) },
      }),
      logprobs: request.logprobs ?? -1,
      renderedTokens: new Int32Array(0),
      parser: null,
      marksReasoning: false,
      ignoredFields,
    },
    model,
  );
}

type OnePrompt = string | readonly number[];

function promptsOf(prompt: EngineCompletionRequest["prompt"]): readonly OnePrompt[] {
  if (typeof prompt === "string") return [prompt];
  const ids = prompt.filter((entry) => typeof entry === "number");
  return ids.length > 0 ? [ids] : prompt.filter((entry) => typeof entry !== "number");
}

function readPrompt(prompt: OnePrompt, echoed: boolean, param: string, model: EngineModel) {
  const { info } = model.native;
  if (typeof prompt !== "string") {
    const tokens = checkedTokenIds(prompt, info.vocabularySize, param);
    return { tokens, echo: echoed ? { text: textOf(tokens, model), fromPosition: 0 } : null };
  }
  const tokens = withoutSecondBos(model.native.tokenize(prompt, true, true), info.bosToken);
  if (tokens.length === 0) throw new ApiError("invalid_value", { message: `'${param}' must not be empty.`, param });
  // Whether the first token is the caller's own shows when the text is read without adding any.
  const added = tokens.length > model.native.tokenize(prompt, false, true).length;
  return { tokens, echo: echoed ? { text: prompt, fromPosition: added ? 1 : 0 } : null };
}

function textOf(tokens: Int32Array, model: EngineModel): string {
  return Buffer.concat(Array.from(tokens, (token) => model.native.tokenBytes(token, true))).toString("utf8");
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
