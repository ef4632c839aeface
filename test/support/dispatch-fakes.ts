import { NO_SCOPE_LIMITS } from "../../edge/ports/limits.ts";
import type { Logger } from "../../shared/logging/logger.ts";
import type { AskedAttempt } from "../../shared/protocol/answer.ts";
import type { Ledger, OpenedRequest, SettledRequest, StartedAttempt } from "../../edge/ports/ledger.ts";
import type {
  Limits,
  LimitsView,
  RateLimitState,
  ReserveDecision,
  ReserveRequest,
  SettleReservation,
} from "../../edge/ports/limits.ts";
import type { ServedModel } from "../../edge/ports/fleet.ts";
import type { Principal } from "../../edge/ports/principal.ts";
import type { ResponseWriter } from "../../edge/ports/response-writer.ts";
import type { Signer } from "../../edge/ports/signer.ts";
import type { InferenceRequest } from "../../edge/dispatch/inference-request.ts";
import type { RequestMetrics } from "../../edge/dispatch/settings.ts";
import { requestEnvelopeSchema, type InferenceRoute } from "../../shared/openai/request-envelope.ts";

export const silentLogger: Logger = {
  debug: () => undefined,
  info: () => undefined,
  warn: () => undefined,
  error: () => undefined,
  with: () => silentLogger,
};

const NO_LIMITS: RateLimitState = {
  limitRequests: 10,
  remainingRequests: 9,
  resetRequestsMs: 6_000,
  limitTokens: null,
  remainingTokens: null,
  resetTokensMs: null,
};

/** Grants everything unless told otherwise, and notes what was taken and given back. */
export class RecordingLimits implements Limits {
  readonly reserved: ReserveRequest[] = [];
  readonly settled: SettleReservation[] = [];
  refusal: Extract<ReserveDecision, { kind: "refused" }> | null = null;

  reserve(request: ReserveRequest): Promise<ReserveDecision> {
    this.reserved.push(request);
    return Promise.resolve(
      this.refusal ?? { kind: "granted", reservationId: `r-${request.requestId}`, state: NO_LIMITS },
    );
  }

  settle(request: SettleReservation): Promise<void> {
    this.settled.push(request);
    return Promise.resolve();
  }

  addSpent(): Promise<void> {
    return Promise.resolve();
  }

  inspect(): Promise<LimitsView> {
    return Promise.resolve({ state: NO_LIMITS, scopes: [] });
  }

  static refusing(code: "rate_limit_exceeded" | "insufficient_quota"): Extract<ReserveDecision, { kind: "refused" }> {
    return {
      kind: "refused",
      code,
      message: "The key may do 10 requests a minute.",
      retryAfterSeconds: 7,
      state: NO_LIMITS,
    };
  }
}

export class RecordingLedger implements Ledger {
  readonly opened: OpenedRequest[] = [];
  readonly started: StartedAttempt[] = [];
  readonly settled: SettledRequest[] = [];
  readonly shedRequests: OpenedRequest[] = [];
  openFails: Error | null = null;

  open(request: OpenedRequest): void {
    if (this.openFails !== null) throw this.openFails;
    this.opened.push(request);
  }

  attemptStarted(attempt: StartedAttempt): void {
    this.started.push(attempt);
  }

  settle(request: SettledRequest): void {
    this.settled.push(request);
  }

  shed(request: OpenedRequest): void {
    this.shedRequests.push(request);
  }

  acceptReport(): readonly { request_id: string; attempt: number }[] {
    return [];
  }

  askedOf(): readonly AskedAttempt[] {
    return [];
  }
}

/** A signature that shows its claims. */
export const readableSigner: Signer = {
  edge: "edge-1",
  sign: (claims) => Promise.resolve(`signed:${JSON.stringify(claims)}`),
  publicKeys: () => [],
};

export class RecordingMetrics implements RequestMetrics {
  started = 0;
  readonly ended: Parameters<RequestMetrics["requestEnded"]>[0][] = [];

  requestStarted(): void {
    this.started++;
  }

  requestEnded(ended: Parameters<RequestMetrics["requestEnded"]>[0]): void {
    this.ended.push(ended);
  }
}

/** Keeps everything written; room and the client's leaving are the test's to say. */
export class RecordingWriter implements ResponseWriter {
  status = 0;
  headers: Readonly<Record<string, string>> = {};
  text = "";
  ended = false;
  destroyed = false;
  closed = false;
  room = true;
  #bytes: Uint8Array[] = [];
  #onDrain: () => void = () => undefined;
  #onClosed: () => void = () => undefined;

  get started(): boolean {
    return this.status !== 0;
  }

  start(status: number, headers: Readonly<Record<string, string>>): void {
    if (this.started) throw new Error("started twice");
    this.status = status;
    this.headers = headers;
  }

  write(chunk: Uint8Array | string): boolean {
    if (!this.started) throw new Error("written before it was started");
    if (this.ended || this.destroyed) throw new Error("written after its end");
    this.#bytes.push(typeof chunk === "string" ? new TextEncoder().encode(chunk) : chunk.slice());
    this.text = Buffer.concat(this.#bytes).toString("utf8");
    return this.room;
  }

  end(): void {
    if (this.ended || this.destroyed) throw new Error("ended twice");
    this.ended = true;
  }

  destroy(): void {
    this.destroyed = true;
  }

  onDrain(listener: () => void): void {
    this.#onDrain = listener;
  }

  onClosed(listener: () => void): void {
    this.#onClosed = listener;
    if (this.closed) listener();
  }

  drain(): void {
    this.room = true;
    this.#onDrain();
  }

  leave(): void {
    this.closed = true;
    this.#onClosed();
  }

  get over(): boolean {
    return this.ended || this.destroyed;
  }

  /** Data of the events that were written, in order. */
  get events(): string[] {
    return this.text
      .split("\n\n")
      .filter((frame) => frame.startsWith("data: "))
      .map((frame) => frame.slice("data: ".length));
  }
}

export const principal: Principal = {
  account: "acme",
  project: "p1",
  keyId: "k1",
  highestBand: null,
  keyLimits: NO_SCOPE_LIMITS,
  projectLimits: NO_SCOPE_LIMITS,
  accountLimits: NO_SCOPE_LIMITS,
};

export const servedModel: ServedModel = {
  id: "m",
  pool: "m",
  aliases: [],
  description: null,
  contextLength: 4_096,
  maxOutput: null,
  capabilities: ["chat", "completions"],
  saes: [],
  readyReplicas: 1,
  failure: null,
  sinceMs: 0,
};

export interface RequestOptions {
  readonly requestId?: string;
  readonly route?: InferenceRoute;
  readonly model?: ServedModel;
  readonly strict?: string;
  readonly progress?: boolean;
  readonly idempotencyKey?: string;
  readonly receivedAtMs: number;
}

export function inferenceRequest(body: Record<string, unknown>, options: RequestOptions): InferenceRequest {
  const bodyText = JSON.stringify({ model: "m", messages: [{ role: "user", content: "hi" }], ...body });
  return {
    requestId: options.requestId ?? "req_0000000000000000000001",
    clientRequestId: null,
    idempotencyKey: options.idempotencyKey ?? null,
    route: options.route ?? "/v1/chat/completions",
    envelope: requestEnvelopeSchema.parse(JSON.parse(bodyText)),
    bodyText,
    principal,
    model: options.model ?? servedModel,
    band: "default",
    strict: options.strict ?? null,
    session: null,
    via: "edge-1",
    returning: null,
    progress: options.progress ?? false,
    receivedAtMs: options.receivedAtMs,
  };
}
