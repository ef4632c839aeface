import type { InferenceRoute, RequestEnvelope } from "../../shared/openai/request-envelope.ts";
import type { ServedModel } from "./fleet.ts";
import type { Principal } from "./principal.ts";
import type { ResponseWriter } from "./response-writer.ts";

/** A request that passed authentication and every check that needs no machine. */
export interface InferenceRequest {
  /** Made by the edge. */
  readonly requestId: string;
  /** The caller's own X-Request-Id, bounded; never keys anything. */
  readonly clientRequestId: string | null;
  readonly route: InferenceRoute;
  readonly envelope: RequestEnvelope;
  /** The caller's JSON text. */
  readonly bodyText: string;
  readonly principal: Principal;
  readonly model: ServedModel;
  /** Clamped to what the principal may use. */
  readonly band: string;
  /** Wall time. */
  readonly receivedAtMs: number;
}

/** One request's life from limits to the last byte. */
export interface Dispatch {
  /** Never rejects: whatever happens is written as an answer or as an error body. */
  run(request: InferenceRequest, writer: ResponseWriter): Promise<void>;
}
