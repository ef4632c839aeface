import type { AppliedSteering } from "../../../shared/steering/receipt.ts";
import type { PromptLogprobs, SensedRows } from "../../native/binding.ts";
import type { Activations } from "../../sae/activation-rows.ts";
import { appliedSteering } from "../../sae/steering-plan.ts";
import type { SampledToken, TaskAccount, TaskSink } from "../loop/generation-task.ts";
import { AnswerAssembly, type AssemblyDeps, type ChoiceEnd } from "../openai/answer-assembly.ts";
import { chatForm, completionForm, type AnswerPart, type ChoiceForm } from "../openai/answer-form.ts";
import type { GenerationPlan, PlannedPrompt } from "../openai/generation-plan.ts";

/** What a choice tells the answer that it is part of. */
export interface ChoiceListener {
  started(): void;
  /** There may be something to write. */
  gained(): void;
  ended(choice: AnswerChoice): void;
}

/** Which choice of which plan. */
export interface ChoicePlace {
  readonly plan: GenerationPlan;
  readonly prompt: PlannedPrompt;
  readonly index: number;
}

/** One choice of an answer: takes the events of its task and has its parts in OpenAI's form. */
export class AnswerChoice implements TaskSink {
  readonly prompt: PlannedPrompt;
  readonly #assembly: AnswerAssembly;
  readonly #form: ChoiceForm;
  readonly #listener: ChoiceListener;
  #first = true;
  #account: TaskAccount | null = null;

  constructor({ plan, prompt, index }: ChoicePlace, deps: AssemblyDeps, listener: ChoiceListener) {
    this.prompt = prompt;
    this.#assembly = new AnswerAssembly(plan, prompt, deps);
    this.#form = plan.kind === "chat" ? chatForm(index) : completionForm(index);
    this.#listener = listener;
  }

  started(): void {
    this.#listener.started();
  }
  token(sampled: SampledToken): void {
    this.#assembly.addToken(sampled);
    this.#listener.gained();
  }
  promptChances(chances: readonly PromptLogprobs[]): void {
    this.#assembly.addPromptChances(chances);
  }
  sensed(rows: SensedRows): void {
    this.#assembly.addRows(rows);
    this.#listener.gained();
  }
  finished(account: TaskAccount): void {
    this.#account = account;
    this.#listener.ended(this);
  }

  /** Null while the choice is being computed. */
  get account(): TaskAccount | null {
    return this.#account;
  }
  /** Once its end was taken; null where they are not told apart. */
  get reasoningTokens(): number | null {
    return this.#assembly.reasoningTokens;
  }
  /** Everything that was sensed, or null where nothing was to be. */
  get activations(): Activations | null {
    return this.#assembly.activations;
  }
  /** Rows that the caller wants along the stream, or null; those of the prompt wait for the answer's first chunk. */
  takeActivations(): Activations | null {
    return this.#first ? null : this.#assembly.takeActivations();
  }

  /** What its steering really did, once it has ended. */
  applied(): AppliedSteering[] {
    if (this.#account === null) return [];
    const { cachedPromptTokens, computedPromptTokens, computedCompletionTokens, editedRows } = this.#account;
    return appliedSteering(this.prompt.steering, {
      editedRows,
      cachedTokens: cachedPromptTokens,
      // The last sampled token never went through the model.
      rows: cachedPromptTokens + computedPromptTokens + computedCompletionTokens - 1,
    });
  }

  /** The choice of a whole answer; once, after its end. */
  whole(): object {
    const { part, finishReason } = this.#end();
    return this.#form.whole(part, finishReason);
  }

  /** What there is to write of a stream now, or null. */
  takeDelta(): object | null {
    const part = this.#assembly.takePart();
    return part === null ? null : this.#delta(part);
  }

  /** The last deltas of a stream: the rest of the text, and the finish. */
  takeEnd(): object[] {
    const { part, finishReason } = this.#end();
    const rest =
      part.text !== "" || part.reasoning !== "" || part.toolCalls.length > 0 || (part.entries ?? []).length > 0;
    return [...(rest || this.#first ? [this.#delta(part)] : []), this.#form.finish(finishReason)];
  }

  #delta(part: AnswerPart): object {
    const delta = this.#form.delta(part, this.#first);
    this.#first = false;
    return delta;
  }

  #end(): ChoiceEnd {
    if (this.#account === null) throw new Error("the choice has not ended");
    return this.#assembly.end(this.#account);
  }
}
