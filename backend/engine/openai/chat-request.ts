import { ApiError } from "../../../shared/errors/api-error.ts";
import { apiErrorOfZod } from "../../../shared/errors/zod-error.ts";
import type { EngineModel } from "../engine-model.ts";
import { toolUseOf } from "../tools/tool-use.ts";
import { UNCONSTRAINED, type ChatPrompt, type Constraint } from "./chat-prompt.ts";
import { applyFieldPolicy } from "./field-policy.ts";
import { CHAT_FIELDS } from "./field-tables.ts";
import { planGeneration, type GenerationPlan } from "./generation-plan.ts";
import type { RequestBody } from "./request-body.ts";
import { engineChatSchema, type EngineChatRequest } from "./request-schemas.ts";
import { checkedGrammar, grammarOf, schemaOf } from "./response-format.ts";
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
  const { prompt, constraint } = constrainedPrompt(request, model);
  return planGeneration(
    {
      kind: "chat",
      request,
      prompts: [{ tokens: prompt.tokens, echo: null }],
      promptParam: () => "messages",
      askedTokens,
      stopStrings: [...stopStringsOf(request.stop), ...prompt.stops],
      sampler: samplerOf(request, {
        vocabularySize: model.native.info.vocabularySize,
        randomSeed: model.randomSeed,
        constraint,
      }),
      logprobs,
      renderedTokens: prompt.renderedTokens,
      parser: prompt.parser,
      marksReasoning: prompt.marksReasoning,
      ignoredFields,
    },
    model,
  );
}

/** One thing at most may constrain an answer: tools, a schema or a grammar. */
function constrainedPrompt(
  request: EngineChatRequest,
  model: EngineModel,
): { prompt: ChatPrompt; constraint: Constraint } {
  const tools = toolUseOf(request, model.native);
  const schema = schemaOf(request.response_format);
  // Checked first, so that a schema without a grammar is told as that and not as a fault of the template.
  const ownGrammar = grammarOf(request.response_format, model.native) || checkedGrammar(request.grammar, model);
  const constraints = [tools !== null, schema !== null, (request.grammar ?? null) !== null].filter(Boolean).length;
  if (constraints > 1) {
    const param = schema === null ? "grammar" : "response_format";
    const message = `'${param}' cannot be combined with another member that constrains the answer.`;
    throw new ApiError("invalid_value", { message, param });
  }
  const templateArguments = request.chat_template_kwargs ?? null;
  const prompt = model.chat.prompt(request.messages, { templateArguments, tools, schema });
  if (tools !== null || prompt.constraint.grammar !== "") return { prompt, constraint: prompt.constraint };
  return { prompt, constraint: { ...UNCONSTRAINED, grammar: ownGrammar } };
}

function chatLogprobs({ logprobs, top_logprobs: top }: EngineChatRequest): number {
  if (logprobs === true) return top ?? 0;
  if (top === null || top === undefined) return -1;
  throw new ApiError("invalid_value", {
    message: "'top_logprobs' is only allowed with 'logprobs': true.",
    param: "top_logprobs",
  });
}
