import { createServer, type IncomingMessage, type Server, type ServerResponse } from "node:http";
import { ApiError, toApiError } from "../../shared/errors/api-error.ts";
import type { Logger } from "../../shared/logging/logger.ts";
import { INFERENCE_ROUTES } from "../../shared/openai/request-envelope.ts";
import { methodOfSaePlace, readSaePath } from "../../shared/protocol/sae-paths.ts";
import { STRICT_HEADER } from "../../shared/protocol/headers.ts";
import type { InferenceClaims } from "../../shared/protocol/inference-token.ts";
import type { Clock } from "../../shared/time/clock.ts";
import { exchangeWithEngine } from "./engine-exchange.ts";
import { readBody, sendError, sendJson } from "../http-answers.ts";
import { readOperatorPath } from "./operator-paths.ts";
import type { OperatorRoutes } from "./operator-routes.ts";
import { RefusedRequests } from "./refused-requests.ts";
import type { EngineAddress, Replica } from "./replica.ts";
import type { ExchangeEnd, RequestNames } from "./running-requests.ts";
import type { CheckedToken, TokenCheck } from "./token-check.ts";

export interface FrontDeps {
  readonly host: string;
  readonly replicas: ReadonlyMap<string, Replica>;
  readonly tokens: TokenCheck;
  readonly operator: OperatorRoutes;
  readonly maxBodyBytes: number;
  readonly logger: Logger;
  readonly clock: Clock;
}

/** A request is kept this long for an engine that is on its way back. */
const HOLD_MS = 10_000;
/** Engines that a request is offered to, one after the other. */
const MOST_TRIES = 3;

interface Destination {
  readonly replica: Replica;
  readonly engine: EngineAddress;
}

/** What became of a request here, for the account of one whose edge left early. */
interface Account {
  /** Its token's id was taken: it is in no more than once. */
  admitted: boolean;
  /** It is in the book of running requests, which tells its end. */
  begun: boolean;
  /** An engine had it and died without a word. */
  mayHaveComputed: boolean;
}

interface HandedOver {
  readonly body: Buffer;
  readonly request: IncomingMessage;
  readonly response: ServerResponse;
  readonly account: Account;
}

/** A host's HTTP face: inference for edges that sign, health for everybody, SAEs for the operator. */
export class Front {
  readonly server: Server;
  readonly #deps: FrontDeps;
  readonly #routes: ReadonlySet<string> = new Set(INFERENCE_ROUTES);
  readonly #refused = new RefusedRequests();
  #draining = false;

  constructor(deps: FrontDeps) {
    this.#deps = deps;
    this.server = createServer(
      { requestTimeout: 60_000, headersTimeout: 20_000, keepAliveTimeout: 75_000 },
      (request, response) => {
        void this.#answer(request, response);
      },
    );
  }

  get draining(): boolean {
    return this.#draining;
  }

  /** From now on new requests are refused; running ones go on. */
  drain(): void {
    this.#draining = true;
  }

  async #answer(request: IncomingMessage, response: ServerResponse): Promise<void> {
    response.on("error", () => undefined);
    try {
      const path = (request.url ?? "/").split("?", 1)[0] ?? "/";
      const saePlace = readSaePath(path);
      const operatorPlace = readOperatorPath(path);
      if (path === "/health" && (request.method === "GET" || request.method === "HEAD")) this.#health(response);
      else if (saePlace?.kind === "rank" && request.method === "POST")
        await this.#infer(request.url ?? path, request, response);
      else if (saePlace !== null && request.method === methodOfSaePlace(saePlace)) await this.#ask(request, response);
      else if (saePlace !== null) {
        const allow = methodOfSaePlace(saePlace);
        sendError(response, new ApiError("method_not_allowed", { source: "backend" }), { allow });
      } else if (operatorPlace !== null) await this.#deps.operator.answer(operatorPlace, request, response);
      else if (!this.#routes.has(path)) throw new ApiError("route_not_found", { source: "backend" });
      else if (request.method === "POST") await this.#infer(path, request, response);
      else sendError(response, new ApiError("method_not_allowed", { source: "backend" }), { allow: "POST" });
    } catch (thrown) {
      this.#refuse(request, response, thrown);
    }
  }

  /** Whatever an engine computes for, rankings too: `path` is what was signed. */
  async #infer(path: string, request: IncomingMessage, response: ServerResponse): Promise<void> {
    if (this.#draining) throw new ApiError("draining", { source: "backend" });
    const token = await this.#deps.tokens.check(request.headers.authorization, "POST", path);
    const account: Account = { admitted: false, begun: false, mayHaveComputed: false };
    try {
      const body = await readBody(request, this.#deps.maxBodyBytes);
      this.#deps.tokens.admit(token, body);
      account.admitted = true;
      if (this.#draining) throw new ApiError("draining", { source: "backend" });
      await this.#handOver(token, { body, request, response, account });
    } finally {
      if (!account.begun) this.#turnedAway(token, account, response);
    }
  }

  /** An edge that left before any engine began waits for a word about the request all the same. */
  #turnedAway({ claims }: CheckedToken, { admitted, mayHaveComputed }: Account, response: ServerResponse): void {
    const names = namesOf(claims);
    if (!admitted && !this.#deps.tokens.forbid(names.edge, names.requestId, names.attempt)) return;
    if (response.destroyed && !response.writableFinished) {
      const running = this.#deps.replicas.get(claims.replica)?.running;
      running?.neverBegan(names, mayHaveComputed ? "counted" : "exact");
    } else if (!mayHaveComputed) this.#refused.add(names);
  }

  /** Whether no engine computed anything for this request and none ever will: it was turned away, or never came. */
  isOutOfTheQuestion(names: RequestNames): boolean {
    return this.#refused.has(names) || this.#deps.tokens.forbid(names.edge, names.requestId, names.attempt);
  }

  /** A question about SAEs that computes nothing: signed with its query, carried to the engine, in no account. */
  async #ask(request: IncomingMessage, response: ServerResponse): Promise<void> {
    if (this.#draining) throw new ApiError("draining", { source: "backend" });
    const token = await this.#deps.tokens.check(
      request.headers.authorization,
      request.method ?? "GET",
      request.url ?? "/",
    );
    const body = await readBody(request, this.#deps.maxBodyBytes);
    this.#deps.tokens.admit(token, body);
    await this.#untilHeard(token, ({ engine }) => {
      if (response.destroyed) return Promise.resolve("cancelled");
      return new Promise((onEnd) =>
        exchangeWithEngine({
          socketPath: engine.socketPath,
          claims: token.claims,
          body,
          contentType: request.headers["content-type"] ?? "application/json",
          accept: "application/json",
          strict: undefined,
          response,
          onEvents: () => undefined,
          wasHeard: () => false,
          onEnd,
        }),
      );
    });
  }

  /**
   * Runs an exchange with the replica's engine, and with the next one where that had ended before it heard of it.
   * `exchange` is called with an engine that is ready at that moment.
   */
  async #untilHeard({ claims }: CheckedToken, exchange: (to: Destination) => Promise<ExchangeEnd>): Promise<void> {
    const replica = this.#deps.replicas.get(claims.replica);
    if (replica === undefined) throw new ApiError("no_replica_available", { source: "backend" });
    let lastInstance = 0;
    for (let tries = 0; tries < MOST_TRIES; tries++) {
      const engine = await replica.engineAfter(lastInstance, HOLD_MS);
      if (this.#draining) throw new ApiError("draining", { source: "backend" });
      if (engine === null) break;
      const end = await exchange({ replica, engine });
      if (end !== "unreached" && end !== "unheard") return;
      replica.suspect(engine.instance);
      lastInstance = engine.instance;
      // An engine that ends whenever it gets this request gets it no third time.
      if (end === "unheard" && tries > 0) break;
    }
    throw new ApiError("no_replica_available", { source: "backend", retryAfterSeconds: replica.retryInSeconds() });
  }

  async #handOver(token: CheckedToken, { body, request, response, account }: HandedOver): Promise<void> {
    const { claims } = token;
    // No await from the choice of the engine to the start of the exchange: what was read stays true.
    await this.#untilHeard(token, ({ replica, engine }) => {
      if (replica.running.open >= replica.maxInFlight) {
        const retryAfterSeconds = replica.running.waitSeconds(replica.slots);
        throw new ApiError("engine_busy", { source: "backend", retryAfterSeconds });
      }
      if (response.destroyed) return Promise.resolve("cancelled");
      const running = replica.running.begin(namesOf(claims), engine.instance);
      account.begun = true;
      const startedAtMs = this.#deps.clock.monotonicMs();
      return new Promise((resolve) =>
        exchangeWithEngine({
          socketPath: engine.socketPath,
          claims,
          body,
          contentType: request.headers["content-type"] ?? "application/json",
          accept: request.headers.accept ?? "*/*",
          strict: request.headersDistinct[STRICT_HEADER]?.[0],
          response,
          onEvents: (count) => running.sawEvents(count),
          wasHeard: () => running.wasHeard(),
          onEnd: (end) => {
            running.close(end);
            if (end === "unreached" || end === "unheard") account.begun = false;
            if (end === "unheard" && !running.isUntouched()) account.mayHaveComputed = true;
            this.#deps.logger.debug("request over", {
              request_id: claims.request_id,
              attempt: claims.attempt,
              replica: replica.name,
              end,
              ms: Math.round(this.#deps.clock.monotonicMs() - startedAtMs),
            });
            resolve(end);
          },
        }),
      );
    });
  }

  #refuse(request: IncomingMessage, response: ServerResponse, thrown: unknown): void {
    const error = toApiError(thrown);
    if (error.code === "internal_error") this.#deps.logger.error("request failed", {}, thrown);
    else if (error.code === "host_unauthorized")
      this.#deps.logger.warn("request refused", { code: error.code, reason: String(error.cause) });
    else this.#deps.logger.debug("request refused", { code: error.code });
    if (request.complete) {
      sendError(response, error);
      return;
    }
    // The rest of the body is not wanted: it is read away while the answer goes out, then the connection ends.
    sendError(response, error, { connection: "close" });
    request.resume();
  }

  #health(response: ServerResponse): void {
    const replicas = [...this.#deps.replicas.values()].map((replica) => ({
      id: replica.name,
      state: replica.state,
      in_flight: replica.running.open,
    }));
    sendJson(response, this.#draining ? 503 : 200, {
      status: this.#draining ? "draining" : "ok",
      host: this.#deps.host,
      replicas,
    });
  }
}

function namesOf(claims: InferenceClaims): RequestNames {
  return { edge: claims.iss, requestId: claims.request_id, attempt: claims.attempt };
}
