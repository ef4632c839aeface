import { ApiError } from "../../../shared/errors/api-error.ts";
import { apiErrorOfZod } from "../../../shared/errors/zod-error.ts";
import { type EmbeddingRequest } from "../../../shared/openai/embeddings.ts";
import type { EngineModel } from "../engine-model.ts";
import { checkedTokenIds } from "./completion-request.ts";
import { poolingOf, type Pooling } from "../embedding/pooling.ts";
import { applyFieldPolicy } from "./field-policy.ts";
import { EMBEDDING_FIELDS } from "./field-tables.ts";
import type { RequestBody } from "./request-body.ts";
import { engineEmbeddingSchema } from "./request-schemas.ts";

export interface EmbeddingPlan {
  readonly inputs: readonly Int32Array[];
  readonly format: "float" | "base64";
  readonly pooling: Pooling;
  /** The sum over all inputs. */
  readonly promptTokens: number;
  readonly ignoredFields: readonly string[];
}

/** POST /v1/embeddings, from the caller's JSON to a plan. All inputs are checked before any is computed. */
export function readEmbeddingRequest(body: RequestBody, model: EngineModel, strict: boolean): EmbeddingPlan {
  if (!model.allowsEmbeddings) {
    throw new ApiError("invalid_value", {
      message: "'model': embeddings of this model are switched off on its host.",
      param: "model",
    });
  }
  const read = engineEmbeddingSchema.safeParse(body);
  if (!read.success) throw apiErrorOfZod(read.error);
  const request = read.data;
  const ignoredFields = applyFieldPolicy(body, EMBEDDING_FIELDS, strict);
  const { embeddingWidth } = model.native.info;
  if ((request.dimensions ?? embeddingWidth) !== embeddingWidth) {
    throw new ApiError("invalid_value", {
      message: `'dimensions': vectors of this model have ${embeddingWidth} dimensions and cannot be shortened.`,
      param: "dimensions",
    });
  }
  const inputs = inputsOf(request.input, model);
  return {
    inputs,
    format: request.encoding_format ?? "float",
    pooling: poolingOf(request.pooling ?? null, model.native.info),
    promptTokens: inputs.reduce((sum, { length }) => sum + length, 0),
    ignoredFields,
  };
}

function inputsOf(input: EmbeddingRequest["input"], model: EngineModel): Int32Array[] {
  const many = Array.isArray(input) && typeof input[0] !== "number";
  const list: readonly unknown[] = many ? input : [input];
  return list.map((one, place) => {
    // A single input is named as the caller wrote it: without an index.
    const param = many ? `input[${place}]` : "input";
    const tokens = tokensOf(one, model, param);
    if (tokens.length === 0) {
      throw new ApiError("invalid_value", { message: `'${param}' has no tokens.`, param });
    }
    if (tokens.length <= model.contextLength) return tokens;
    throw new ApiError("context_length_exceeded", {
      message: `'${param}' has ${tokens.length} tokens, but at most ${model.contextLength} can be embedded.`,
      param,
    });
  });
}

/** Text of the caller's is never read as control tokens here. */
function tokensOf(one: unknown, model: EngineModel, param: string): Int32Array {
  if (typeof one === "string") return model.native.tokenize(one, true, false);
  const ids = Array.isArray(one) ? one.filter((id) => typeof id === "number") : [];
  return checkedTokenIds(ids, model.native.info.vocabularySize, param);
}
