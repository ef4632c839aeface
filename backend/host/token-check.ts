import { createHash } from "node:crypto";
import { decodeJwt, decodeProtectedHeader, errors, jwtVerify } from "jose";
import { ApiError } from "../../shared/errors/api-error.ts";
import {
  type InferenceClaims,
  inferenceClaimsSchema,
  TOKEN_ALGORITHM,
  TOKEN_CLOCK_TOLERANCE_SECONDS,
  TOKEN_LIFETIME_SECONDS,
} from "../../shared/protocol/inference-token.ts";
import type { Clock } from "../../shared/time/clock.ts";
import type { EdgeKeys } from "./edge-keys.ts";
import type { ReplayMemory } from "./replay-memory.ts";

/** Claims whose signature, times and target were checked; the body is still to come. */
export interface CheckedToken {
  readonly claims: InferenceClaims;
  readonly expiresAtMs: number;
}

export interface TokenCheckDeps {
  readonly host: string;
  readonly keys: Pick<EdgeKeys, "find" | "clockOffsetMs">;
  readonly replays: ReplayMemory;
  readonly clock: Pick<Clock, "nowMs">;
}

/** Decides whether a request comes from an edge this host knows. Refusals are ApiErrors; their cause is for the log. */
export class TokenCheck {
  readonly #deps: TokenCheckDeps;

  constructor(deps: TokenCheckDeps) {
    this.#deps = deps;
  }

  /** Everything that can be judged before the body is read. */
  async check(authorization: string | undefined, method: string, path: string): Promise<CheckedToken> {
    const token = /^Bearer (\S+)$/i.exec(authorization ?? "")?.[1];
    if (token === undefined) throw refusal("no bearer token");
    const { edge, kid } = namesIn(token);
    const key = await this.#deps.keys.find(edge, kid);
    if (key === null) throw refusal("signed by no edge key that is known here");
    const nowMs = this.#deps.clock.nowMs() + this.#deps.keys.clockOffsetMs(edge);
    const claims = await this.#verify(token, key, nowMs);
    const toleranceMs = TOKEN_CLOCK_TOLERANCE_SECONDS * 1_000;
    if (claims.exp - claims.iat > TOKEN_LIFETIME_SECONDS) throw refusal("lives too long");
    if (claims.iat * 1_000 > nowMs + toleranceMs) throw refusal("issued in the future");
    if (claims.method !== method || claims.path !== path) throw refusal("made for another method or path");
    if (claims.jti !== `${claims.request_id}.${claims.attempt}`) throw refusal("jti is not its request and attempt");
    return { claims, expiresAtMs: claims.exp * 1_000 + toleranceMs };
  }

  /** The last step, once the whole body is here: it must be the one that was signed, and never seen before. */
  admit({ claims, expiresAtMs }: CheckedToken, body: Uint8Array): void {
    if (createHash("sha256").update(body).digest("hex") !== claims.body_sha256)
      throw refusal("the body is not the signed one");
    const nowMs = this.#deps.clock.nowMs() + this.#deps.keys.clockOffsetMs(claims.iss);
    const verdict = this.#deps.replays.take(`${claims.iss} ${claims.jti}`, expiresAtMs, nowMs);
    if (verdict === "replayed") throw refusal("replayed");
    if (verdict === "full") throw new ApiError("engine_busy", { source: "backend" });
  }

  /** Takes the id of a request that must not be let in any more; false when it was let in before, or nothing can be remembered. */
  forbid(edge: string, requestId: string, attempt: number): boolean {
    const nowMs = this.#deps.clock.nowMs() + this.#deps.keys.clockOffsetMs(edge);
    const longestMs = (TOKEN_LIFETIME_SECONDS + 2 * TOKEN_CLOCK_TOLERANCE_SECONDS) * 1_000;
    return this.#deps.replays.take(`${edge} ${requestId}.${attempt}`, nowMs + longestMs, nowMs) === "fresh";
  }

  async #verify(token: string, key: Parameters<typeof jwtVerify>[1], nowMs: number): Promise<InferenceClaims> {
    try {
      const { payload } = await jwtVerify(token, key, {
        algorithms: [TOKEN_ALGORITHM],
        audience: this.#deps.host,
        currentDate: new Date(nowMs),
        clockTolerance: TOKEN_CLOCK_TOLERANCE_SECONDS,
        requiredClaims: ["exp", "iat", "jti", "iss"],
      });
      const claims = inferenceClaimsSchema.safeParse(payload);
      if (claims.success) return claims.data;
    } catch (error) {
      throw refusal(error instanceof errors.JOSEError ? error.code : "cannot be verified");
    }
    throw refusal("claims are missing or of the wrong kind");
  }
}

function namesIn(token: string): { edge: string; kid: string } {
  try {
    const { kid } = decodeProtectedHeader(token);
    const { iss } = decodeJwt(token);
    if (typeof kid === "string" && typeof iss === "string") return { edge: iss, kid };
  } catch {
    throw refusal("not a token");
  }
  throw refusal("kid or iss is missing");
}

function refusal(why: string): ApiError {
  return new ApiError("host_unauthorized", { source: "backend", cause: why });
}
