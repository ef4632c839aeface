import type { AppliedChat } from "../../native/binding.ts";
import type { TemplateMessage } from "./chat-messages.ts";

/** Kinds of conversations that are remembered; a caller cannot make more of them than this cost memory. */
const MOST_KINDS = 64;

/**
 * libllama-common analyses a template anew for every request, to learn how its answers are to be read: milliseconds on
 * the thread that all answers come through. Of a template that marks neither reasoning nor stops nothing is learnt by
 * it, so where a plain rendering gave the same prompt once, later conversations of that kind are rendered plainly.
 */
export class PlainRenderings {
  readonly #verdicts = new Map<string, boolean>();

  /** `full` analyses, `plain` does not; either may give an error instead, which then is the answer. */
  render(kind: string, full: () => AppliedChat | Error, plain: () => AppliedChat | Error): AppliedChat | Error {
    const verdict = this.#verdicts.get(kind);
    if (verdict === true) return plain();
    const applied = full();
    if (verdict === undefined && this.#verdicts.size < MOST_KINDS && !(applied instanceof Error)) {
      this.#verdicts.set(kind, isPlain(applied) && samePrompt(applied, plain()));
    }
    return applied;
  }
}

function isPlain({ supportsThinking, additionalStops, grammar }: AppliedChat): boolean {
  return !supportsThinking && additionalStops.length === 0 && grammar === "";
}

function samePrompt(full: AppliedChat, plain: AppliedChat | Error): boolean {
  return !(plain instanceof Error) && plain.prompt === full.prompt;
}

/** Roles with the members they have, in the order of their first coming, and the template arguments' names. */
export function conversationKind(
  messages: readonly TemplateMessage[],
  templateArguments: Readonly<Record<string, unknown>> | null,
): string {
  const shapes = messages.map((message) => [message.role, ...Object.keys(message)].join(" "));
  return JSON.stringify([[...new Set(shapes)], Object.keys(templateArguments ?? {})]);
}
