import { ApiError } from "../../../shared/errors/api-error.ts";
import { apiErrorOfZod } from "../../../shared/errors/zod-error.ts";
import type { EngineModel } from "../engine-model.ts";
import { applyFieldPolicy } from "./field-policy.ts";
import { CHAT_FIELDS } from "./field-tables.ts";
import { planGeneration, type GenerationPlan } from "./generation-plan.ts";
import type { RequestBody } from "./request-body.ts";
import { engineChatSchema, type EngineChatRequest } from "./request-schemas.ts";
import { grammarOf } from "./response-format.ts";
import { samplerOf, stopStringsOf } from "./sampling.ts";
import { askedTokenLimit } from "./token-limit.ts";

/** POST /v1/chat/completions, from the caller's JSON to a plan. Throws an ApiError that names the member at fault. */
export function readChatRequest(body: RequestBody, model: EngineModel, strict: boolean): GenerationPlan {
  const read = engineChatSchema.safeParse(body);
  if (!read.success) throw apiErrorOfZod(read.error);
  const request = read.data;
  const ignoredFields = applyFieldPolicy(body, CHAT_FIELDS, strict);
  const logprobs = chatLogprobs(request);
  const askedTokens = askedTokenLimit(request);
  const grammar = grammarOf(request.response_format, model.native);
  const { tokens, stops } = model.chat.prompt(request.messages, request.chat_template_kwargs ?? null);
  return planGeneration(
    {
      kind: "chat",
      request,
      prompt: tokens,
      promptParam: "messages",
      askedTokens,
      stopStrings: [...stopStringsOf(request.stop), ...stops],
      sampler: samplerOf(request, {
        vocabularySize: model.native.info.vocabularySize,
        randomSeed: model.randomSeed,
        grammar,
      }),
      logprobs,
      ignoredFields,
    },
    model,
  );
}

function chatLogprobs({ logprobs, top_logprobs: top }: EngineChatRequest): number {
  if (logprobs === true) return top ?? 0;
  if (top === null || top === undefined) return -1;
  throw new ApiError("invalid_value", {
    message: "'top_logprobs' is only allowed with 'logprobs': true.",
    param: "top_logprobs",
  });
}
