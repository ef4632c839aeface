import type { PromptLogprobs, SensedRows } from "../../native/binding.ts";
import { SensedActivations, type Activations } from "../../sae/activation-rows.ts";
import type { SampledToken, TaskAccount } from "../loop/generation-task.ts";
import { AnswerText } from "../text/answer-text.ts";
import { chancesOf, LogprobTrail, type TrailEntry } from "../text/logprob-trail.ts";
import { reasoningSpan, TokenSpans } from "../text/token-spans.ts";
import { MessageTracker, type MessageDelta } from "../tools/message-tracker.ts";
import type { AnswerPart, WireFinishReason } from "./answer-form.ts";
import type { GenerationPlan, PlannedPrompt } from "./generation-plan.ts";

export interface ChoiceEnd {
  readonly part: AnswerPart;
  readonly finishReason: WireFinishReason;
}

export interface AssemblyDeps {
  readonly tokenBytes: (token: number) => Uint8Array;
  readonly newCallId: () => string;
}

const NO_TOKENS: readonly TrailEntry[] = [];

/** Puts one choice together from the events of its task; streams and whole answers take the same parts from here. */
export class AnswerAssembly {
  readonly #deps: AssemblyDeps;
  readonly #prompt: PlannedPrompt;
  readonly #text: AnswerText;
  readonly #trail: LogprobTrail | null;
  readonly #rows: SensedActivations | null;
  readonly #tracker: MessageTracker | null;
  /** Null where reasoning is not told apart. */
  readonly #spans: TokenSpans | null;
  #reasoningTokens: number | null = null;
  /** Of an echoed prompt. */
  #echoed: TrailEntry[] = [];
  /** Not handed out yet, or with a tracker the whole answer so far. */
  #ready = "";

  constructor(plan: GenerationPlan, prompt: PlannedPrompt, deps: AssemblyDeps) {
    this.#deps = deps;
    this.#prompt = prompt;
    this.#text = new AnswerText(plan.stopStrings);
    this.#trail = plan.logprobs < 0 ? null : new LogprobTrail(deps.tokenBytes);
    this.#rows = plan.sensing === null ? null : new SensedActivations(plan.sensing);
    this.#tracker = plan.parser === null ? null : new MessageTracker(plan.parser, deps.newCallId);
    this.#spans = plan.marksReasoning ? new TokenSpans() : null;
    this.#ready = prompt.echo?.text ?? "";
    if (plan.promptLogprobs) this.#echoed = this.#firstEntry();
  }

  addToken(sampled: SampledToken): void {
    this.#trail?.add(sampled);
    this.#spans?.add(sampled.bytes);
    this.#ready += this.#text.push(sampled.bytes);
  }

  addRows(rows: SensedRows): void {
    this.#rows?.add(rows);
  }

  addPromptChances(chances: readonly PromptLogprobs[]): void {
    const { echo, tokens } = this.#prompt;
    if (echo === null) return;
    for (const chance of chances) {
      if (chance.position < echo.fromPosition) continue;
      const bytes = this.#deps.tokenBytes(tokens[chance.position] ?? 0);
      this.#echoed.push({ bytes, ...chancesOf(chance, this.#deps.tokenBytes) });
    }
  }

  /** Nothing stands before the very first token, so it has no chances. */
  #firstEntry(): TrailEntry[] {
    const { echo, tokens } = this.#prompt;
    if (echo === null || echo.fromPosition > 0) return [];
    return [{ bytes: this.#deps.tokenBytes(tokens[0] ?? 0), logprob: null, top: [] }];
  }

  /** Tokens inside the reasoning of the answer, once it has ended; null where they are not known. */
  get reasoningTokens(): number | null {
    return this.#reasoningTokens;
  }

  /** What was sensed, or null when nothing was to be. */
  get activations(): Activations | null {
    return this.#rows?.result() ?? null;
  }

  /** Rows that the caller wants along the stream, or null if there are none at the moment. */
  takeActivations(): Activations | null {
    return this.#rows?.take() ?? null;
  }

  /** What became certain since the last call, or null if nothing did. */
  takePart(): AnswerPart | null {
    const gained = this.#tracker === null ? this.#takeText() : this.#tracker.update(this.#ready);
    if (gained.text === "" && gained.reasoning === "" && gained.toolCalls.length === 0) {
      // Log-probabilities of what a parser still holds back go with it.
      if (this.#tracker !== null || this.#trail === null) return null;
      const entries = this.#takeEntries();
      return entries.length === 0 ? null : { ...gained, entries };
    }
    return { ...gained, entries: this.#trail === null ? null : this.#takeEntries() };
  }

  /** The last part and why it is the last. */
  end(account: TaskAccount): ChoiceEnd {
    this.#ready += this.#text.end(account.textEndBytes);
    const cut = account.reason === "length";
    const gained = this.#tracker === null ? this.#takeText() : this.#tracker.end(this.#ready, cut);
    const entries =
      this.#trail === null ? null : [...this.#echoed.splice(0), ...this.#trail.end(this.#text.releasedBytes)];
    this.#reasoningTokens = this.#countReasoning();
    const called = (this.#tracker?.callCount ?? 0) > 0;
    return { part: { ...gained, entries }, finishReason: cut ? "length" : called ? "tool_calls" : "stop" };
  }

  #countReasoning(): number | null {
    const tracker = this.#tracker;
    if (tracker === null || this.#spans === null) return null;
    const span = reasoningSpan(this.#ready, tracker.reasoning, (beginning) => tracker.reasoningIn(beginning));
    return span === null ? null : this.#spans.countWithin(span);
  }

  #takeText(): MessageDelta {
    const text = this.#ready;
    this.#ready = "";
    return { text, reasoning: "", toolCalls: [] };
  }

  #takeEntries(): readonly TrailEntry[] {
    if (this.#trail === null) return NO_TOKENS;
    return [...this.#echoed.splice(0), ...this.#trail.take(this.#text.releasedBytes)];
  }
}
