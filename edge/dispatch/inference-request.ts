import type { InferenceRoute, RequestEnvelope } from "../../shared/openai/request-envelope.ts";
import type { ServedModel } from "../ports/fleet.ts";
import type { Principal } from "../ports/principal.ts";

/** One request as `edge/http` hands it over: authenticated, of the right size and shape, its model resolved. */
export interface InferenceRequest {
  readonly requestId: string;
  /** The caller's own X-Request-Id; keys nothing. */
  readonly clientRequestId: string | null;
  readonly route: InferenceRoute;
  readonly envelope: RequestEnvelope;
  /** The caller's JSON text, which is what travels on, with minimal edits. */
  readonly bodyText: string;
  readonly principal: Principal;
  readonly model: ServedModel;
  /** Clamped to what the project may use. */
  readonly band: string;
  /** The caller's X-Steerage-Strict, for the engine to judge; null when it was not sent. */
  readonly strict: string | null;
  /** Whether the client says that it comes back after a refusal; null when it says neither. */
  readonly returning: boolean | null;
  /** A stream that waits is told its place in comments. */
  readonly progress: boolean;
  /** The caller's session id, for affinity alone; null when it named none. */
  readonly session: string | null;
  /** The edges that it came through, this one last. */
  readonly via: string;
  /** The caller's Idempotency-Key; null when it sent none. */
  readonly idempotencyKey: string | null;
  /** Wall time, Unix milliseconds. */
  readonly receivedAtMs: number;
}
