import { ApiError, toApiError } from "../../../shared/errors/api-error.ts";
import { randomBase62 } from "../../../shared/ids.ts";
import { usageOf, type Usage } from "../../../shared/openai/usage.ts";
import { IGNORED_FIELDS_HEADER, STEERING_HEADER } from "../../../shared/protocol/headers.ts";
import { receiptOf, type AppliedSteering } from "../../../shared/steering/receipt.ts";
import type { EngineEnded } from "../../ports/engine-events.ts";
import type { EngineLoop, TaskTicket } from "../loop/engine-loop.ts";
import type { TaskAccount } from "../loop/generation-task.ts";
import type { Watching } from "../monitoring/watching.ts";
import { CHAT_NAMES, COMPLETION_NAMES, type AnswerHead, type AnswerNames } from "../openai/answer-form.ts";
import { ignoredFieldsHeader } from "../openai/field-policy.ts";
import { taskOf, type GenerationPlan } from "../openai/generation-plan.ts";
import { plainWords } from "../openai/library-words.ts";
import { AnswerChoice } from "./answer-choice.ts";
import type { Exchange } from "./exchange.ts";
import { sendError, sendJson } from "./send.ts";
import { SseAnswer } from "./sse-answer.ts";

export interface GenerationDeps {
  readonly loop: EngineLoop;
  readonly watching: Pick<Watching, "begin">;
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
      answer.submit();
      if (exchange.gone.aborted) answer.cancel();
      else exchange.gone.addEventListener("abort", () => answer.cancel(), { once: true });
    } catch (thrown) {
      reject(thrown instanceof Error ? thrown : new Error(String(thrown)));
    }
  });
}

type Counts = Pick<EngineEnded, "computed_prompt" | "cached_prompt" | "computed_completion">;

class GenerationAnswer {
  readonly #plan: GenerationPlan;
  readonly #exchange: Exchange;
  readonly #deps: GenerationDeps;
  readonly #names: AnswerNames;
  readonly #head: AnswerHead;
  readonly #done: () => void;
  readonly #stream: SseAnswer | null;
  readonly #choices: readonly AnswerChoice[];
  readonly #tickets: TaskTicket[] = [];
  /** Why no further choice is computed. */
  #failure: ApiError | null = null;
  #finished = false;

  constructor(plan: GenerationPlan, exchange: Exchange, deps: GenerationDeps, done: () => void) {
    this.#plan = plan;
    this.#exchange = exchange;
    this.#deps = deps;
    this.#done = done;
    this.#names = plan.kind === "chat" ? CHAT_NAMES : COMPLETION_NAMES;
    this.#head = {
      id: `${this.#names.idPrefix}${randomBase62(24, deps.randomBytes)}`,
      created: Math.floor(deps.nowMs() / 1_000),
      model: deps.modelName,
    };
    const told = {
      started: () => this.#open(),
      gained: () => this.#stream?.schedule(),
      ended: (choice: AnswerChoice) => this.#choiceEnded(choice),
    };
    const assemblyDeps = {
      tokenBytes: deps.tokenBytes,
      newCallId: () => `call_${randomBase62(24, deps.randomBytes)}`,
    };
    const { prompts, choicesPerPrompt } = plan;
    this.#choices = prompts.flatMap((prompt, place) =>
      Array.from({ length: choicesPerPrompt }, (_, at) => {
        const index = place * choicesPerPrompt + at;
        return new AnswerChoice({ plan, prompt, index }, assemblyDeps, told);
      }),
    );
    this.#stream = plan.stream ? new SseAnswer(exchange.response, this.#head, this.#names, this.#choices) : null;
  }

  /** Throws what the loop refuses; nothing is computed then. Choices on one prompt copy it from the first of them. */
  submit(): void {
    const { loop, watching } = this.#deps;
    const { account, salt } = this.#exchange;
    const watch = watching.begin(account.label);
    let leader: TaskTicket | null = null;
    for (const [place, choice] of this.#choices.entries()) {
      const own = taskOf(this.#plan, choice.prompt, place, { label: account.label, salt });
      const { task, sink } = watch(own, choice);
      if (task.countsPrompt) leader = null;
      const ticket: TaskTicket = place === 0 ? loop.submit(task, sink) : loop.submitFurther(task, sink, leader);
      this.#tickets.push(ticket);
      if (task.countsPrompt) leader = ticket;
    }
    if (this.#failure !== null) this.cancel();
  }

  cancel(): void {
    for (const ticket of this.#tickets) ticket.cancel();
  }

  /** The answer of a stream begins when its slot is taken: everything that can be refused has been by then. */
  #open(): void {
    const steering = !this.#steers ? { [STEERING_HEADER]: receiptOf([]) } : {};
    this.#stream?.open({ ...steering, ...this.#ignoredFields() });
  }

  #choiceEnded(choice: AnswerChoice): void {
    const { account } = choice;
    if (this.#failure === null && account !== null) {
      this.#failure = failureOf(account, this.#exchange.gone.aborted);
      if (this.#failure === null) this.#stream?.endChoice(choice);
      else this.cancel();
    }
    if (this.#choices.every((one) => one.account !== null)) this.#finish();
  }

  #finish(): void {
    // Cancelling the rest may have ended the last of them already, inside the call that ended the first.
    if (this.#finished) return;
    this.#finished = true;
    const accounts = this.#choices.flatMap(({ account }) => (account === null ? [] : [account]));
    const sum = (count: (account: TaskAccount) => number): number =>
      accounts.reduce((total, account) => total + count(account), 0);
    const ofPrompts = (count: (account: TaskAccount) => number): number =>
      accounts.reduce((total, one, at) => total + (at % this.#plan.choicesPerPrompt === 0 ? count(one) : 0), 0);
    const cancelled = accounts.some(({ reason }) => reason === "cancelled");
    const failed = accounts.some(({ failure }) => failure !== null);
    const counts = {
      computed_prompt: ofPrompts(({ computedPromptTokens }) => computedPromptTokens),
      cached_prompt: ofPrompts(({ cachedPromptTokens }) => cachedPromptTokens),
      computed_completion: sum(({ computedCompletionTokens }) => computedCompletionTokens),
    };
    this.#exchange.account.end(failed ? "failed" : cancelled ? "cancelled" : "completed", counts);
    try {
      if (this.#failure !== null) throw this.#failure;
      this.#write(counts, this.#receipt());
    } catch (thrown) {
      this.#fail(thrown);
    } finally {
      this.#done();
    }
  }

  /** From what the hook did in all choices together. */
  #receipt(): string {
    const items = new Map<string, AppliedSteering>();
    for (const item of this.#choices.flatMap((choice) => choice.applied())) {
      const key = JSON.stringify([item.layer, item.saeId, item.hash]);
      const sum = items.get(key);
      items.set(key, sum?.rows === undefined ? item : { ...item, rows: sum.rows + (item.rows ?? 0) });
    }
    return receiptOf([...items.values()]);
  }

  get #steers(): boolean {
    return this.#plan.prompts.some(({ steering }) => steering.edits.length > 0);
  }

  /** After the ends of all choices were taken. */
  #usage({ computed_prompt: computed, cached_prompt: cached, computed_completion: completion }: Counts): Usage {
    const reasoning = this.#choices.map(({ reasoningTokens }) => reasoningTokens);
    const sum = reasoning.reduce((total, tokens) => (total === null || tokens === null ? null : total + tokens), 0);
    return usageOf(computed + cached, completion, cached, sum);
  }

  #write(counts: Counts, receipt: string): void {
    const activations = this.#choices[0]?.activations ?? null;
    const used = this.#steers || activations !== null;
    const steerage = used ? { steering: receipt, ...(activations === null ? {} : { activations }) } : null;
    if (this.#stream !== null) {
      this.#stream.end(steerage, this.#plan.includeUsage ? this.#usage(counts) : null);
      return;
    }
    const { id, created, model } = this.#head;
    const choices = this.#choices.map((choice) => choice.whole());
    const body = {
      id,
      object: this.#names.wholeObject,
      created,
      model,
      choices,
      usage: this.#usage(counts),
      ...(steerage === null ? {} : { steerage }),
    };
    sendJson(this.#exchange.response, 200, body, { [STEERING_HEADER]: receipt, ...this.#ignoredFields() });
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

function failureOf({ reason, failure }: TaskAccount, clientGone: boolean): ApiError | null {
  // Nobody but a client that left, or an engine that ends, cancels a task whose request did not fail before.
  if (reason === "cancelled") return new ApiError(clientGone ? "client_closed_request" : "draining");
  if (failure === null) return null;
  const cause = new Error(`${failure.code}: ${failure.message}`);
  if (failure.code === "grammar_invalid") {
    const message = `What constrains the answer cannot be followed: ${plainWords(failure.message)}.`;
    return new ApiError("invalid_value", { message, source: "backend", cause });
  }
  return new ApiError("engine_failed", { source: "backend", cause });
}
