import { ApiError } from "../../shared/errors/api-error.ts";
import { joinBytes } from "../../shared/join-bytes.ts";
import { ERROR_SOURCE_HEADER } from "../../shared/protocol/headers.ts";
import type { Claim, ClaimResult, ReplicaTarget } from "../ports/coordinator.ts";
import type { ServedModel } from "../ports/fleet.ts";
import type { Principal } from "../ports/principal.ts";
import type { UpstreamExchange } from "../ports/upstream.ts";
import { bodySha256 } from "./outgoing/body-sha256.ts";
import { HeldClaim } from "./held-claim.ts";
import type { DispatcherDeps } from "./settings.ts";

/** The word with which replicas report that they hold SAEs. */
const CAPABILITY = "steering";
/** Far more than a thousand features with their labels. */
const MAX_ANSWER_BYTES = 8 * 2 ** 20;

/** A question about one SAE, for a replica that holds it. */
export interface SaeCall {
  readonly requestId: string;
  readonly clientRequestId: string | null;
  readonly principal: Principal;
  readonly band: string;
  readonly model: ServedModel;
  readonly saeId: string;
  readonly method: "GET" | "POST";
  /** With its query, as the replica shall see it. */
  readonly path: string;
  /** Empty for GET. */
  readonly bodyText: string;
  readonly receivedAtMs: number;
  /** The caller left. */
  readonly gone: AbortSignal;
}

export interface SaeAnswer {
  readonly status: number;
  readonly headers: Readonly<Record<string, string>>;
  readonly body: Uint8Array<ArrayBuffer>;
}

export type SaeCallDeps = Pick<DispatcherDeps, "clock" | "logger" | "coordinator" | "signer" | "upstream" | "settings">;

/**
 * Carries a question to one replica that holds the SAE, as any request waits for its turn there. One attempt: asking
 * again is cheap for the caller. `begun` hears of the replica before anything is sent there. Throws an ApiError when no
 * answer can be had.
 */
export async function callSae(
  deps: SaeCallDeps,
  call: SaeCall,
  begun: (target: ReplicaTarget) => void,
): Promise<SaeAnswer> {
  const claim = await admitted(deps, call);
  const held = new HeldClaim(deps, call.model.pool, claim);
  let result: ClaimResult = "failed";
  try {
    begun(claim.target);
    const answer = await exchanged(deps, call, claim);
    if (answer.status < 400) result = "answered";
    else if (answer.status === 429 || answer.status === 503) result = "back_pressure";
    else if (answer.status < 500 && answer.status !== 401 && answer.status !== 403) result = "refused";
    if (result !== "failed") return answer;
    throw new ApiError("upstream_error", { source: "backend" });
  } catch (thrown) {
    if (call.gone.aborted) result = "cancelled";
    throw thrown;
  } finally {
    held.release(result, null, null);
  }
}

async function admitted({ coordinator }: SaeCallDeps, call: SaeCall): Promise<Claim> {
  const { requestId, model, saeId, bodyText, gone } = call;
  // Its listener would never hear of it, and the question would wait for a place that nobody takes.
  if (gone.aborted) throw new ApiError("client_closed_request");
  const leave = () => void coordinator.cancel(model.pool, requestId).catch(() => undefined);
  gone.addEventListener("abort", leave, { once: true });
  try {
    const decision = await coordinator.admit({
      pool: model.pool,
      requestId,
      attempt: 1,
      project: call.principal.project,
      band: call.band,
      arrivedAtMs: call.receivedAtMs,
      capability: CAPABILITY,
      saeIds: [saeId],
      needsSomeSae: false,
      excludedReplicas: [],
      bodyBytes: bodyText.length,
      returning: null,
      // Four bytes are about one token.
      inputTokens: Math.ceil(bodyText.length / 4),
      outputTokens: 1,
      session: null,
      prefix: null,
    });
    if (decision.kind === "claimed") return decision.claim;
    if (decision.kind === "refused") {
      throw new ApiError(decision.code, { retryAfterSeconds: decision.retryAfterSeconds });
    }
    throw new ApiError(decision.kind === "cancelled" ? "no_replica_available" : "sae_not_found");
  } finally {
    gone.removeEventListener("abort", leave);
  }
}

async function exchanged({ clock, signer, upstream, settings }: SaeCallDeps, call: SaeCall, { target }: Claim) {
  const { requestId, method, path, gone } = call;
  const body = new TextEncoder().encode(call.bodyText);
  const token = await signer.sign({
    aud: target.backend,
    jti: `${requestId}.1`,
    method,
    path,
    body_sha256: await bodySha256(body),
    request_id: requestId,
    attempt: 1,
    replica: target.replicaId,
    cache_salt: call.principal.project,
  });
  const { timeouts } = settings;
  return await new Promise<SaeAnswer>((resolve, reject) => {
    const chunks: Uint8Array[] = [];
    let length = 0;
    let head: { status: number; headers: Record<string, string> } | null = null;
    const opened: { exchange: UpstreamExchange | null } = { exchange: null };
    const fail = (error: ApiError): void => {
      over();
      opened.exchange?.abort();
      reject(error);
    };
    const onGone = () => fail(new ApiError("upstream_error", { source: "backend" }));
    const limitMs = method === "POST" ? timeouts.generationMs : timeouts.responseHeaderMs;
    const stopTimer =
      limitMs === 0
        ? () => undefined
        : clock.after(limitMs, () =>
            fail(new ApiError(method === "POST" ? "generation_timeout" : "response_header_timeout")),
          );
    const over = (): void => {
      stopTimer();
      gone.removeEventListener("abort", onGone);
    };
    gone.addEventListener("abort", onGone, { once: true });
    opened.exchange = upstream.open(
      {
        url: `${target.url.replace(/\/+$/, "")}${path}`,
        method,
        headers: {
          accept: "application/json",
          authorization: `Bearer ${token}`,
          ...(method === "POST" ? { "content-type": "application/json" } : {}),
        },
        body: method === "POST" ? body : null,
        dialTimeoutMs: timeouts.dialMs,
      },
      {
        onHeaders: (status, headers) => (head = { status, headers: passed(headers) }),
        onData: (chunk) => {
          length += chunk.length;
          if (length > MAX_ANSWER_BYTES) fail(new ApiError("upstream_error", { source: "backend" }));
          else chunks.push(chunk);
          return true;
        },
        onEnd: () => {
          over();
          if (head === null) reject(new ApiError("upstream_error", { source: "backend" }));
          else resolve({ ...head, body: joinBytes(chunks) });
        },
        onFailure: (failure, cause) => {
          over();
          const unreached = failure === "unreachable" || failure === "dial_timeout";
          reject(new ApiError(unreached ? "no_replica_available" : "upstream_error", { cause }));
        },
      },
    );
    if (gone.aborted) onGone();
  });
}

const PASSED: ReadonlySet<string> = new Set([
  "content-type",
  "retry-after",
  "allow",
  ERROR_SOURCE_HEADER.toLowerCase(),
]);

function passed(headers: Readonly<Record<string, string>>): Record<string, string> {
  return Object.fromEntries(Object.entries(headers).filter(([name]) => PASSED.has(name)));
}
