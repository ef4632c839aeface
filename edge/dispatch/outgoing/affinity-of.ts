import type { AdmitRequest } from "../../ports/coordinator.ts";
import { TextHash } from "../../routing/hash.ts";
import { promptPrefix } from "../../routing/prompt-prefix.ts";
import type { InferenceRequest } from "../inference-request.ts";

/** Where a prompt begins in the caller's JSON text. What stands before it may differ without changing the prompt. */
const PROMPT_KEYS = { "/v1/chat/completions": '"messages"', "/v1/completions": '"prompt"' } as const;

/** What ties a request to machines, without its text: neither session nor prompt leaves the project's own scope. */
export function affinityOf(request: InferenceRequest): Pick<AdmitRequest, "session" | "prefix"> {
  const { project } = request.principal;
  const session =
    request.session === null ? null : new TextHash().update(JSON.stringify([project, request.session])).value();
  if (request.route === "/v1/embeddings") return { session, prefix: null };
  const from = request.bodyText.indexOf(PROMPT_KEYS[request.route]);
  if (from === -1) return { session, prefix: null };
  const { steering, profile, steering_intensity, tools } = request.envelope;
  const scope = JSON.stringify([project, request.route, steering, profile, steering_intensity, tools]);
  return { session, prefix: promptPrefix(request.bodyText, from, scope) };
}
