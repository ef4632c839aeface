import { ApiError } from "../../../shared/errors/api-error.ts";
import { usageOf, type Usage } from "../../../shared/openai/usage.ts";
import { receiptOf } from "../../../shared/steering/receipt.ts";
import type { SensedRows } from "../../native/binding.ts";
import { SensedActivations, type Activations } from "../../sae/activation-rows.ts";
import { appliedSteering } from "../../sae/steering-plan.ts";
import type { SampledToken, TaskAccount } from "../loop/generation-task.ts";
import { AnswerText } from "../text/answer-text.ts";
import { LogprobTrail } from "../text/logprob-trail.ts";
import type { AnswerPart, WireFinishReason } from "./answer-form.ts";
import type { GenerationPlan } from "./generation-plan.ts";

/** Everything about an answer that is only known at its end. */
export interface AnswerEnd {
  readonly part: AnswerPart;
  readonly finishReason: WireFinishReason;
  readonly usage: Usage;
  /** Value of X-Steerage-Steering. */
  readonly receipt: string;
  /** The member `steerage`, or null when nothing was steered or sensed. */
  readonly steerage: { readonly steering: string; readonly activations?: Activations } | null;
}

/** Puts one answer together from the events of its task; streams and whole answers take the same parts from here. */
export class AnswerAssembly {
  readonly #plan: GenerationPlan;
  readonly #text: AnswerText;
  readonly #trail: LogprobTrail | null;
  readonly #rows: SensedActivations | null;
  #pendingText = "";

  constructor(plan: GenerationPlan, tokenBytes: (token: number) => Uint8Array) {
    this.#plan = plan;
    this.#text = new AnswerText(plan.stopStrings);
    this.#trail = plan.logprobs < 0 ? null : new LogprobTrail(tokenBytes);
    this.#rows = plan.sensing === null ? null : new SensedActivations(plan.sensing);
  }

  addToken(sampled: SampledToken): void {
    this.#trail?.add(sampled);
    this.#pendingText += this.#text.push(sampled.bytes);
  }

  addRows(rows: SensedRows): void {
    this.#rows?.add(rows);
  }

  /** Rows that the caller wants along the stream, or null if there are none at the moment. */
  takeActivations(): Activations | null {
    return this.#rows?.take() ?? null;
  }

  /** What became certain since the last call, or null if nothing did. */
  takePart(): AnswerPart | null {
    const text = this.#pendingText;
    const entries = this.#trail?.take(this.#text.releasedBytes) ?? null;
    if (text === "" && (entries === null || entries.length === 0)) return null;
    this.#pendingText = "";
    return { text, entries };
  }

  /** The last part and the rest. Throws `engine_failed` for a task that failed. */
  end(account: TaskAccount): AnswerEnd {
    if (account.failure !== null) {
      const { code, message } = account.failure;
      throw new ApiError("engine_failed", { source: "backend", cause: new Error(`${code}: ${message}`) });
    }
    const text = this.#pendingText + this.#text.end(account.textEndBytes);
    this.#pendingText = "";
    const entries = this.#trail === null ? null : this.#trail.end(this.#text.releasedBytes);
    const { steering, sensing } = this.#plan;
    const receipt = receiptOf(
      appliedSteering(steering, {
        editedRows: account.editedRows,
        cachedTokens: account.cachedPromptTokens,
        // The last sampled token never went through the model.
        rows: account.cachedPromptTokens + account.computedPromptTokens + account.computedCompletionTokens - 1,
      }),
    );
    const activations = sensing === null || this.#rows === null ? null : this.#rows.result();
    const used = steering.edits.length > 0 || activations !== null;
    const {
      cachedPromptTokens: cached,
      computedPromptTokens: computed,
      computedCompletionTokens: completion,
    } = account;
    return {
      part: { text, entries },
      finishReason: account.reason === "length" ? "length" : "stop",
      usage: usageOf(computed + cached, completion, cached),
      receipt,
      steerage: used ? { steering: receipt, ...(activations === null ? {} : { activations }) } : null,
    };
  }
}
