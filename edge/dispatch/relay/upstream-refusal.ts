import { ApiError } from "../../../shared/errors/api-error.ts";
import { ERRORS, type ErrorCode } from "../../../shared/errors/registry.ts";
import type { ReplicaTarget } from "../../ports/coordinator.ts";
import { errorBodyOf, parseJson, readRetryAfterSeconds, refusalOf, type Refusal } from "./refusal.ts";
import type { RelayResult } from "./relay-result.ts";

/** An error body that is longer is not read on. */
const MAX_BODY_BYTES = 64 * 1_024;

/** A backend's answer that is not a success: what it means for the client, the claim and further attempts. */
export class UpstreamRefusal {
  readonly #status: number;
  readonly #retryAfterSeconds: number | null;
  readonly #decoder = new TextDecoder("utf-8");
  #text = "";
  #bytes = 0;

  constructor(status: number, headers: Readonly<Record<string, string>>, wallNowMs: number) {
    this.#status = status;
    this.#retryAfterSeconds = readRetryAfterSeconds(headers["retry-after"], wallNowMs);
  }

  /** False: enough. */
  push(chunk: Uint8Array): boolean {
    this.#bytes += chunk.length;
    if (this.#bytes > MAX_BODY_BYTES) return false;
    this.#text += this.#decoder.decode(chunk, { stream: true });
    return true;
  }

  result(kind: ReplicaTarget["kind"]): Pick<RelayResult, "kind" | "claimResult"> & Partial<RelayResult> {
    const status = this.#status;
    const base = { kind: "failed", refusal: this.#refusal(), detail: `status ${status}` } as const;
    if (status === 429 || status === 503) {
      const busyForMs = this.#retryAfterSeconds === null ? null : this.#retryAfterSeconds * 1_000;
      return { ...base, claimResult: "back_pressure", busyForMs, retryable: true, nothingComputed: true };
    }
    // Who we are is between us and the machine; the caller's key was good. Redirects are followed nowhere.
    if (status === 401 || status === 403 || status < 400)
      return { ...base, claimResult: "failed", retryable: true, nothingComputed: true };
    if (status === 502) return { ...base, claimResult: "failed", retryable: true };
    if (status >= 500) return { ...base, claimResult: "failed" };
    return { ...base, claimResult: "refused", nothingComputed: kind === "host" || status !== 408 };
  }

  #refusal(): Refusal {
    const status = this.#status;
    if (status === 401 || status === 403 || status < 400) return mapped("upstream_error", null);
    const body =
      this.#bytes > MAX_BODY_BYTES ? null : errorBodyOf(parseJson(this.#text + this.#decoder.decode()), status);
    if (body === null) {
      if (status === 429 || status === 503) return mapped("no_replica_available", this.#retryAfterSeconds);
      if (status >= 500) return mapped("upstream_error", this.#retryAfterSeconds);
      // A refusal in words of its own: as a failure of ours it would only be asked again.
      const code = status === 404 ? "model_not_found" : "invalid_value";
      const message = `The machine refused the request with status ${status}.`;
      return { ...refusalOf(new ApiError(code, { message, source: "backend" })), status };
    }
    const { code } = body.error;
    const retryable = status === 429 || (isKnown(code) ? ERRORS[code].retryable : status >= 502);
    return {
      status,
      body,
      retryAfterSeconds: retryable ? (this.#retryAfterSeconds ?? 1) : null,
      source: "backend",
    };
  }
}

function mapped(code: ErrorCode, retryAfterSeconds: number | null): Refusal {
  return refusalOf(
    new ApiError(code, { source: "backend", ...(retryAfterSeconds === null ? {} : { retryAfterSeconds }) }),
  );
}

function isKnown(code: string): code is ErrorCode {
  return Object.hasOwn(ERRORS, code);
}
