import { ApiError } from "../../../shared/errors/api-error.ts";
import { IGNORED_FIELDS_HEADER } from "../../../shared/protocol/headers.ts";
import { embeddingAnswer } from "../embedding/embedding-answer.ts";
import type { EmbeddingQueue } from "../embedding/embedding-queue.ts";
import type { EmbeddingRuns } from "../embedding/embedding-runs.ts";
import { ignoredFieldsHeader } from "../openai/field-policy.ts";
import type { EmbeddingPlan } from "../openai/embedding-request.ts";
import type { Exchange } from "./exchange.ts";
import { sendJson } from "./send.ts";

export interface EmbeddingDeps {
  readonly queue: EmbeddingQueue;
  readonly runs: EmbeddingRuns;
  readonly modelName: string;
}

/** Computes the vectors of a plan and writes them. The account holds what was computed, however it ends. */
export async function answerEmbeddings(plan: EmbeddingPlan, exchange: Exchange, deps: EmbeddingDeps): Promise<void> {
  const run = deps.runs.begin(exchange.account.label, plan.promptTokens);
  try {
    const vectors = await deps.queue.embed({
      inputs: plan.inputs,
      pooling: plan.pooling,
      signal: exchange.gone,
      onProgress: (computedTokens) => run.progress(computedTokens),
    });
    exchange.account.end("completed", { computed_prompt: plan.promptTokens });
    const ignored =
      plan.ignoredFields.length === 0 ? {} : { [IGNORED_FIELDS_HEADER]: ignoredFieldsHeader(plan.ignoredFields) };
    sendJson(exchange.response, 200, embeddingAnswer(deps.modelName, vectors, plan.format, plan.promptTokens), ignored);
  } catch (thrown) {
    const gone = exchange.gone.aborted;
    exchange.account.end(gone ? "cancelled" : "failed", { computed_prompt: run.computedTokens });
    if (gone) return;
    throw thrown instanceof ApiError ? thrown : new ApiError("engine_failed", { source: "backend", cause: thrown });
  } finally {
    run.end();
  }
}
