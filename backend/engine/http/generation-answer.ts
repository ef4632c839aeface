import { ApiError, toApiError } from "../../../shared/errors/api-error.ts";
import { randomBase62 } from "../../../shared/ids.ts";
import { IGNORED_FIELDS_HEADER, STEERING_HEADER } from "../../../shared/protocol/headers.ts";
import { receiptOf } from "../../../shared/steering/receipt.ts";
import type { SensedRows } from "../../native/binding.ts";
import type { EngineLoop } from "../loop/engine-loop.ts";
import type { SampledToken, TaskAccount, TaskSink } from "../loop/generation-task.ts";
import { AnswerAssembly, type AnswerEnd } from "../openai/answer-assembly.ts";
import { CHAT_FORM, completionForm, type AnswerForm, type AnswerHead } from "../openai/answer-form.ts";
import { ignoredFieldsHeader } from "../openai/field-policy.ts";
import { taskOf, type GenerationPlan } from "../openai/generation-plan.ts";
import type { Exchange } from "./exchange.ts";
import { sendError, sendJson } from "./send.ts";
import { SseAnswer } from "./sse-answer.ts";

export interface GenerationDeps {
  readonly loop: EngineLoop;
  readonly modelName: string;
  readonly tokenBytes: (token: number) => Uint8Array;
  readonly nowMs: () => number;
  readonly randomBytes: (length: number) => Uint8Array;
}

/** Computes a plan and writes its answer. Resolves when the exact account is known, whatever became of the client. */
export function answerGeneration(plan: GenerationPlan, exchange: Exchange, deps: GenerationDeps): Promise<void> {
  return new Promise((resolve, reject) => {
    const answer = new GenerationAnswer(plan, exchange, deps, resolve);
    try {
      const ticket = deps.loop.submit(taskOf(plan, exchange.account.label, exchange.salt), answer);
      if (exchange.gone.aborted) ticket.cancel();
      else exchange.gone.addEventListener("abort", () => ticket.cancel(), { once: true });
    } catch (thrown) {
      reject(thrown instanceof Error ? thrown : new Error(String(thrown)));
    }
  });
}

class GenerationAnswer implements TaskSink {
  readonly #plan: GenerationPlan;
  readonly #exchange: Exchange;
  readonly #assembly: AnswerAssembly;
  readonly #form: AnswerForm;
  readonly #head: AnswerHead;
  readonly #done: () => void;
  readonly #stream: SseAnswer | null;

  constructor(plan: GenerationPlan, exchange: Exchange, deps: GenerationDeps, done: () => void) {
    this.#plan = plan;
    this.#exchange = exchange;
    this.#done = done;
    this.#form = plan.kind === "chat" ? CHAT_FORM : completionForm();
    this.#head = {
      id: `${this.#form.idPrefix}${randomBase62(24, deps.randomBytes)}`,
      created: Math.floor(deps.nowMs() / 1_000),
      model: deps.modelName,
    };
    this.#assembly = new AnswerAssembly(plan, deps.tokenBytes);
    this.#stream = plan.stream ? new SseAnswer(exchange.response, this.#head, this.#form, this.#assembly) : null;
  }

  /** The answer of a stream begins when its slot is taken: everything that can be refused has been by then. */
  started(): void {
    const steering = this.#plan.steering.edits.length === 0 ? { [STEERING_HEADER]: receiptOf([]) } : {};
    this.#stream?.open({ ...steering, ...this.#ignoredFields() });
  }

  token(sampled: SampledToken): void {
    this.#assembly.addToken(sampled);
    this.#stream?.schedule();
  }

  sensed(rows: SensedRows): void {
    this.#assembly.addRows(rows);
    this.#stream?.schedule();
  }

  finished(account: TaskAccount): void {
    const cancelled = account.reason === "cancelled";
    this.#exchange.account.end(cancelled ? "cancelled" : account.failure === null ? "completed" : "failed", {
      computed_prompt: account.computedPromptTokens,
      cached_prompt: account.cachedPromptTokens,
      computed_completion: account.computedCompletionTokens,
    });
    try {
      // Nobody but a client that left, or an engine that ends, cancels a task.
      if (cancelled) throw new ApiError(this.#exchange.gone.aborted ? "client_closed_request" : "draining");
      this.#write(this.#assembly.end(account));
    } catch (thrown) {
      this.#fail(thrown);
    } finally {
      this.#done();
    }
  }

  #write(end: AnswerEnd): void {
    if (this.#stream !== null) {
      this.#stream.end(end, this.#plan.includeUsage);
      return;
    }
    const { id, created, model } = this.#head;
    const body = {
      id,
      object: this.#form.wholeObject,
      created,
      model,
      choices: [this.#form.whole(end.part, end.finishReason)],
      usage: end.usage,
      ...(end.steerage === null ? {} : { steerage: end.steerage }),
    };
    sendJson(this.#exchange.response, 200, body, { [STEERING_HEADER]: end.receipt, ...this.#ignoredFields() });
  }

  #fail(thrown: unknown): void {
    const { response, logger } = this.#exchange;
    if (response.headersSent) {
      const error = toApiError(thrown);
      if (error.code !== "client_closed_request") {
        logger.error("stream broken off", { code: error.code }, error.cause ?? thrown);
      }
      this.#stream?.fail(error);
    } else sendError(response, thrown, logger);
  }

  #ignoredFields(): Record<string, string> {
    const { ignoredFields } = this.#plan;
    return ignoredFields.length === 0 ? {} : { [IGNORED_FIELDS_HEADER]: ignoredFieldsHeader(ignoredFields) };
  }
}
