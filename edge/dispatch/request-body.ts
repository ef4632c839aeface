import { applyEdits, modify } from "jsonc-parser";
import type { InferenceRoute, RequestEnvelope } from "../../shared/openai/request-envelope.ts";

export interface BodyEdits {
  readonly route: InferenceRoute;
  readonly envelope: RequestEnvelope;
  /** What the chosen backend calls the model. */
  readonly backendModel: string;
  readonly injectUsage: boolean;
}

/**
 * The caller's own text with the fewest possible edits: the backend's name for the model where it differs, and a
 * wish for usage on streams. Everything else stays as it was written, numbers and order included.
 */
export function editedBody(bodyText: string, { route, envelope, backendModel, injectUsage }: BodyEdits): string {
  let text = bodyText;
  if (backendModel !== envelope.model) text = set(text, ["model"], backendModel);
  const wantsUsage = envelope.stream_options?.include_usage === true;
  if (injectUsage && envelope.stream === true && !wantsUsage && route !== "/v1/embeddings") {
    if (envelope.stream_options === undefined) text = withFirstMember(text, '"stream_options":{"include_usage":true},');
    else if (envelope.stream_options === null) text = set(text, ["stream_options"], { include_usage: true });
    else text = set(text, ["stream_options", "include_usage"], true);
  }
  return text;
}

/** The common case needs no parser: an object that has at least its `model` takes another member in front. */
function withFirstMember(text: string, member: string): string {
  const inside = text.indexOf("{") + 1;
  return text.slice(0, inside) + member + text.slice(inside);
}

function set(text: string, path: string[], value: unknown): string {
  return applyEdits(text, modify(text, path, value, {}));
}
