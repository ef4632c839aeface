import { parseTree, type Node } from "jsonc-parser";
import type { InferenceRoute, RequestEnvelope } from "../../../shared/openai/request-envelope.ts";

export interface BodyEdits {
  readonly route: InferenceRoute;
  readonly envelope: RequestEnvelope;
  /** What the chosen backend calls the model. */
  readonly backendModel: string;
  readonly injectUsage: boolean;
  /** The longest answer that is let through, tokens; null is what the caller or the window says. */
  readonly maxOutput: number | null;
}

/**
 * The caller's own text with the fewest possible edits: the backend's name for the model where it differs, a limit
 * where the caller has none or a higher one than `maxOutput`, and a wish for usage on streams. Everything else stays as it was written, numbers and
 * order included.
 */
export function editedBody(bodyText: string, edits: BodyEdits): string {
  const { route, envelope, backendModel, injectUsage, maxOutput } = edits;
  let text = bodyText;
  if (maxOutput !== null && route !== "/v1/embeddings") text = limited(text, envelope, maxOutput);
  if (backendModel !== envelope.model) text = replaced(text, memberOf(parseTree(text), "model"), backendModel);
  const wantsUsage = envelope.stream_options?.include_usage === true;
  if (injectUsage && envelope.stream === true && !wantsUsage && route !== "/v1/embeddings") {
    if (envelope.stream_options === undefined) text = withFirstMember(text, '"stream_options":{"include_usage":true},');
    else text = withWish(text, memberOf(parseTree(text), "stream_options"));
  }
  return text;
}

/** The common case needs no parser: an object that has at least its `model` takes another member in front. */
function withFirstMember(text: string, member: string): string {
  const inside = text.indexOf("{") + 1;
  return text.slice(0, inside) + member + text.slice(inside);
}

/** Without a limit of the caller's, or with a higher one, this one is written in. */
function limited(bodyText: string, envelope: RequestEnvelope, maxOutput: number): string {
  const explicit = envelope.max_completion_tokens ?? envelope.max_tokens ?? Infinity;
  if (explicit <= maxOutput) return bodyText;
  let text = bodyText;
  let isWritten = false;
  for (const name of ["max_completion_tokens", "max_tokens"]) {
    const node = memberOf(parseTree(text), name);
    if (node === undefined) continue;
    text = replaced(text, node, maxOutput);
    isWritten = true;
  }
  return isWritten ? text : withFirstMember(text, `"max_tokens":${maxOutput},`);
}

function withWish(text: string, options: Node | undefined): string {
  const wish = memberOf(options, "include_usage");
  if (wish !== undefined) return replaced(text, wish, true);
  if (options?.children === undefined || options.children.length === 0)
    return replaced(text, options, { include_usage: true });
  const inside = options.offset + 1;
  return `${text.slice(0, inside)}"include_usage":true,${text.slice(inside)}`;
}

/** Of members with the same name the last one counts, as for whoever read the request before. */
function memberOf(object: Node | undefined, name: string): Node | undefined {
  return object?.children?.findLast(({ children }) => children?.[0]?.value === name)?.children?.[1];
}

function replaced(text: string, node: Node | undefined, value: unknown): string {
  if (node === undefined) return text;
  return text.slice(0, node.offset) + JSON.stringify(value) + text.slice(node.offset + node.length);
}
