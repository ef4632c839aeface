import { usageOf, type Usage } from "../../shared/openai/usage.ts";
import type { GenerationRequest } from "./request.ts";
import type { Work } from "./account.ts";
import { hashOf, seededRandom } from "./text.ts";

export const EMBEDDING_WIDTH = 64;

export interface AnswerHead {
  readonly id: string;
  readonly created: number;
  readonly model: string;
}

export function usageOfWork(work: Work): Usage {
  return usageOf(work.computedPrompt + work.cachedPrompt, work.computedCompletion, work.cachedPrompt);
}

/** The OpenAI shapes of one generating request, whole and in chunks. */
export class AnswerShapes {
  readonly #chat: boolean;
  readonly #head: AnswerHead;

  constructor(request: GenerationRequest, head: AnswerHead) {
    this.#chat = request.kind === "chat";
    this.#head = head;
  }

  whole(text: string, finishReason: string, usage: Usage, receipt: string): unknown {
    const choice = this.#chat
      ? { index: 0, message: { role: "assistant", content: text }, logprobs: null, finish_reason: finishReason }
      : { index: 0, text, logprobs: null, finish_reason: finishReason };
    return {
      ...this.#head,
      object: this.#chat ? "chat.completion" : "text_completion",
      choices: [choice],
      usage,
      ...(receipt === "none" ? {} : { steerage: { steering: receipt } }),
    };
  }

  /** What a chat stream begins with; null for completions. */
  opening(): unknown {
    return this.#chat ? this.#chunk([this.#delta({ role: "assistant", content: "" }, null)]) : null;
  }

  token(text: string): unknown {
    return this.#chunk([this.#chat ? this.#delta({ content: text }, null) : this.#text(text, null)]);
  }

  finish(finishReason: string): unknown {
    return this.#chunk([this.#chat ? this.#delta({}, finishReason) : this.#text("", finishReason)]);
  }

  steerage(receipt: string): unknown {
    return { ...this.#chunkHead(), choices: [], steerage: { steering: receipt } };
  }

  usage(usage: Usage): unknown {
    return { ...this.#chunkHead(), choices: [], usage };
  }

  #chunk(choices: unknown[]): unknown {
    return { ...this.#chunkHead(), choices };
  }

  #chunkHead() {
    return { ...this.#head, object: this.#chat ? "chat.completion.chunk" : "text_completion" };
  }

  #delta(delta: unknown, finishReason: string | null): unknown {
    return { index: 0, delta, logprobs: null, finish_reason: finishReason };
  }

  #text(text: string, finishReason: string | null): unknown {
    return { index: 0, text, logprobs: null, finish_reason: finishReason };
  }
}

/** A vector of length one that depends on the words alone. */
export function embeddingOf(tokens: readonly string[]): Float32Array {
  const random = seededRandom(hashOf(tokens.join(" ")));
  const vector = Float32Array.from({ length: EMBEDDING_WIDTH }, () => random() - 0.5);
  const norm = Math.hypot(...vector);
  return vector.map((value) => value / norm);
}

export function embeddingAnswer(
  model: string,
  vectors: readonly Float32Array[],
  base64: boolean,
  promptTokens: number,
): unknown {
  return {
    object: "list",
    model,
    data: vectors.map((vector, index) => ({
      object: "embedding",
      index,
      embedding: base64
        ? Buffer.from(vector.buffer, vector.byteOffset, vector.byteLength).toString("base64")
        : [...vector],
    })),
    usage: { prompt_tokens: promptTokens, total_tokens: promptTokens },
  };
}
