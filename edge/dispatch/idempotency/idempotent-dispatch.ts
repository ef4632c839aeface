import { ApiError, toApiError } from "../../../shared/errors/api-error.ts";
import type { Logger } from "../../../shared/logging/logger.ts";
import { REPLAYED_HEADER, REQUEST_ID_HEADER } from "../../../shared/protocol/headers.ts";
import type { Clock } from "../../../shared/time/clock.ts";
import { scopesOf } from "../../limits/scopes.ts";
import type { AnswerKey, AnswerStore, KeptAnswer } from "../../ports/answer-store.ts";
import type { Limits } from "../../ports/limits.ts";
import type { ResponseWriter } from "../../ports/response-writer.ts";
import { rateLimitHeaders } from "../account/rate-limit-headers.ts";
import type { InferenceRequest } from "../inference-request.ts";
import { refusalHeaders, refusalOf } from "../relay/refusal.ts";
import { AnswerKeeper, type IdempotencySettings, type RunningAnswer } from "./answer-keeper.ts";

export interface IdempotentDispatchDeps {
  readonly clock: Clock;
  readonly logger: Logger;
  readonly store: AnswerStore;
  readonly limits: Pick<Limits, "inspect">;
  readonly sha256: (text: string) => Promise<string>;
  /** This process, for claims that others see. */
  readonly holder: string;
  /** As they are now. */
  readonly settings: () => IdempotencySettings;
  readonly draining: () => boolean;
  readonly run: (request: InferenceRequest, writer: ResponseWriter) => Promise<void>;
}

/** Says that an answer is the repetition of a first one, whose id stands in `x-request-id`. */
const REPLAYED = { [REPLAYED_HEADER]: "true" };
/** How often another edge's claim is looked at. */
const POLL_MS = 500;

/**
 * Requests with an Idempotency-Key, in front of the dispatcher: the first one is run and its answer kept, a repetition
 * gets that answer or waits for it, and is neither counted nor billed. Errors are not kept, so a repetition after one
 * is a first request again.
 */
export class IdempotentDispatch {
  readonly #deps: IdempotentDispatchDeps;
  readonly #keeper: AnswerKeeper;

  constructor(deps: IdempotentDispatchDeps) {
    this.#deps = deps;
    this.#keeper = new AnswerKeeper(deps);
  }

  /** Never rejects. */
  async run(request: InferenceRequest, writer: ResponseWriter): Promise<void> {
    if (request.idempotencyKey === null || this.#deps.settings().keepMs === 0) return this.#deps.run(request, writer);
    try {
      await this.#answered(request, request.idempotencyKey, writer);
    } catch (thrown) {
      const error = toApiError(thrown);
      if (error.code === "internal_error")
        this.#deps.logger.error("an idempotent request failed unexpectedly", { request_id: request.requestId }, thrown);
      if (!writer.started) await this.#refuse(request, error, writer);
    }
  }

  /** Stops what runs in the background; claims that are open end with their lease. */
  close(): void {
    this.#keeper.close();
  }

  async #answered(request: InferenceRequest, idempotencyKey: string, writer: ResponseWriter): Promise<void> {
    const { clock, sha256, settings } = this.#deps;
    const key = { project: request.principal.project, keySha256: await sha256(idempotencyKey) };
    const fingerprint = await sha256(`${request.route}\n${request.strict ?? ""}\n${request.bodyText}`);
    const giveUpAtMs = clock.monotonicMs() + settings().waitMs;
    while (!writer.closed) {
      const running = this.#keeper.running(key);
      const followed =
        running === null
          ? await this.#first(request, { key, fingerprint }, writer)
          : await this.#follow(running, fingerprint, request, writer);
      if (followed === "answered") return;
      if (followed === "not_kept") throw new ApiError("idempotent_answer_not_kept");
      if (clock.monotonicMs() >= giveUpAtMs) throw new ApiError("total_timeout");
      if (followed === "elsewhere") await new Promise<void>((resolve) => clock.after(POLL_MS, resolve));
    }
  }

  async #follow(
    running: RunningAnswer,
    fingerprint: string,
    request: InferenceRequest,
    writer: ResponseWriter,
  ): Promise<"answered" | "again" | "not_kept"> {
    if (running.fingerprint !== fingerprint) throw new ApiError("idempotency_key_reused");
    const headers = { ...(await this.#rateLimits(request)), ...REPLAYED };
    const followed = await running.answer.follow(writer, { isFirst: false, headers });
    // Not before it is out of the way, or it would be met again and again.
    if (followed === "again") await running.over;
    return followed;
  }

  /** Nobody in this process has this key: the database tells whether it is new. */
  async #first(
    request: InferenceRequest,
    asked: { readonly key: AnswerKey; readonly fingerprint: string },
    writer: ResponseWriter,
  ): Promise<"answered" | "again" | "not_kept" | "elsewhere"> {
    // Taken before the database is asked, so that those who come meanwhile wait here.
    const running = this.#keeper.begin(asked.key, asked.fingerprint);
    const decision = await this.#keeper.claim(running, request.requestId);
    switch (decision.kind) {
      case "claimed": {
        const first = running.answer.follow(writer, { isFirst: true, headers: {} });
        await this.#deps.run(request, running.answer);
        await this.#keeper.ended(running, request.requestId);
        return first;
      }
      case "kept":
        return this.#replay(decision.answer, request, writer);
      case "running":
        return "elsewhere";
      case "different":
        throw new ApiError("idempotency_key_reused");
      case "full":
        throw new ApiError("idempotency_keys_exhausted", { retryAfterSeconds: 60 });
      default:
        return decision satisfies never;
    }
  }

  async #replay(
    { status, headers, body }: KeptAnswer,
    request: InferenceRequest,
    writer: ResponseWriter,
  ): Promise<"answered" | "not_kept"> {
    if (body === null) return "not_kept";
    writer.start(status, { ...headers, ...(await this.#rateLimits(request)), ...REPLAYED });
    writer.write(body);
    writer.end();
    return "answered";
  }

  async #refuse(request: InferenceRequest, error: ApiError, writer: ResponseWriter): Promise<void> {
    const refusal = refusalOf(error);
    const limits = await this.#rateLimits(request);
    writer.start(refusal.status, { ...limits, ...refusalHeaders(refusal), [REQUEST_ID_HEADER]: request.requestId });
    writer.write(JSON.stringify(refusal.body));
    writer.end();
  }

  /** A repetition takes nothing, so its headers tell what is left now. */
  async #rateLimits({ principal, receivedAtMs }: InferenceRequest): Promise<Record<string, string>> {
    const asked = { account: principal.account, scopes: scopesOf(principal), atMs: receivedAtMs };
    const view = await this.#deps.limits.inspect(asked).catch(() => null);
    return view === null ? {} : rateLimitHeaders(view.state);
  }
}
