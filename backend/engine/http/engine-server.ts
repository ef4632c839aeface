import { createServer, type IncomingMessage, type Server, type ServerResponse } from "node:http";
import type { Socket } from "node:net";
import { ApiError } from "../../../shared/errors/api-error.ts";
import type { Logger } from "../../../shared/logging/logger.ts";
import { INFERENCE_ROUTES } from "../../../shared/openai/request-envelope.ts";
import { methodOfSaePlace, readSaePath, type SaePlace } from "../../../shared/protocol/sae-paths.ts";
import { ENGINE_EVENTS_PATH, ENGINE_SAES_PATH, ENGINE_TEXT_PATHS } from "../../ports/engine-events.ts";
import type { EngineModel } from "../engine-model.ts";
import type { EventHub } from "../events/event-hub.ts";
import { RequestAccount } from "../events/request-account.ts";
import { readChatRequest } from "../openai/chat-request.ts";
import { readCompletionRequest } from "../openai/completion-request.ts";
import type { SaeManagement } from "../load/sae-management.ts";
import { readEmbeddingRequest } from "../openai/embedding-request.ts";
import type { GenerationPlan } from "../openai/generation-plan.ts";
import { checkModelName, readRequestBody } from "../openai/request-body.ts";
import { answerWatchCall, isWatchPath, type WatchRouteDeps } from "../monitoring/watch-routes.ts";
import type { FeatureRanker } from "../saes/feature-ranker.ts";
import { answerTextTool } from "../openai/text-tools.ts";
import { RankingAccount } from "../saes/ranking-account.ts";
import { answerSaeCall } from "../saes/sae-routes.ts";
import { saesOf, type SaeRegistry } from "../sae-registry.ts";
import { answerEmbeddings, type EmbeddingDeps } from "./embeddings-answer.ts";
import { isStrict, labelOf, saltOf, type Exchange } from "./exchange.ts";
import { answerGeneration, type GenerationDeps } from "./generation-answer.ts";
import { readBody } from "./read-body.ts";
import { sendError, sendJson } from "./send.ts";

export interface EngineServerDeps {
  readonly model: EngineModel;
  readonly generation: GenerationDeps;
  readonly embedding: EmbeddingDeps;
  readonly ranker: Pick<FeatureRanker, "rank">;
  readonly saes: SaeRegistry;
  readonly management: SaeManagement;
  readonly watch: Omit<WatchRouteDeps, "readBody">;
  readonly hub: EventHub;
  readonly logger: Logger;
  readonly maxBodyBytes: number;
}

/** Longer than any client keeps a connection, so that it is never closed under a request on its way. */
const KEEP_ALIVE_MS = 120_000;

const CLOSE_IDLE_EVERY_MS = 10;
/** For a client that does not read its last bytes. */
const CLOSE_GRACE_MS = 2_000;

const HEALTH_PATH = "/health";
type InferencePath = (typeof INFERENCE_ROUTES)[number];

/** The engine's HTTP face on its own socket. Whoever reaches the socket is the host: nothing is authenticated here. */
export class EngineServer {
  readonly server: Server;
  readonly #deps: EngineServerDeps;
  readonly #eventStreams = new Set<ServerResponse>();
  /** Connections that no request came on yet: Node does not count them as idle. */
  readonly #silent = new Set<Socket>();
  #draining = false;

  constructor(deps: EngineServerDeps) {
    this.#deps = deps;
    this.server = createServer((request, response) => {
      this.#silent.delete(request.socket);
      void this.#handle(request, response);
    });
    this.server.keepAliveTimeout = KEEP_ALIVE_MS;
    this.server.on("connection", (socket) => {
      this.#silent.add(socket);
      socket.once("close", () => this.#silent.delete(socket));
    });
  }

  /** From now on new requests get 503; those that run go on. */
  drain(): void {
    this.#draining = true;
  }

  /** After the last answer: event streams end, and connections close as soon as what was written has left. */
  async close(): Promise<void> {
    for (const stream of this.#eventStreams) stream.end();
    this.#deps.watch.watching.close();
    const closed = new Promise<void>((resolve) => this.server.close(() => resolve()));
    for (const socket of this.#silent) socket.destroy();
    // A connection whose answer is still being written becomes idle only later.
    const idle = setInterval(() => this.server.closeIdleConnections(), CLOSE_IDLE_EVERY_MS);
    const stuck = setTimeout(() => this.server.closeAllConnections(), CLOSE_GRACE_MS);
    await closed;
    clearInterval(idle);
    clearTimeout(stuck);
  }

  async #handle(request: IncomingMessage, response: ServerResponse): Promise<void> {
    const { logger } = this.#deps;
    // A write that meets a connection just lost must not end the process; "close" tells everything that matters.
    response.on("error", (error) => logger.debug("connection lost", { reason: error.message }));
    try {
      const path = (request.url ?? "").split("?")[0] ?? "";
      const saePlace = readSaePath(path);
      const route = INFERENCE_ROUTES.find((known) => known === path);
      const textTool = ENGINE_TEXT_PATHS.find((known) => known === path);
      if (route !== undefined) {
        allowOnly("POST", request, response);
        await this.#infer(route, request, response);
      } else if (saePlace !== null) {
        allowOnly(methodOfSaePlace(saePlace), request, response);
        await this.#answerSaes(saePlace, request, response);
      } else if (textTool !== undefined) {
        allowOnly("POST", request, response);
        const body = readRequestBody(await readBody(request, this.#deps.maxBodyBytes));
        checkModelName(body, this.#deps.model.name);
        sendJson(response, 200, answerTextTool(textTool, body, this.#deps.model));
      } else if (path === HEALTH_PATH) {
        allowOnly("GET", request, response);
        sendJson(response, this.#draining ? 503 : 200, { status: this.#draining ? "draining" : "ok" });
      } else if (path === ENGINE_EVENTS_PATH) {
        allowOnly("GET", request, response);
        this.#streamEvents(response);
      } else if (path === ENGINE_SAES_PATH || path.startsWith(`${ENGINE_SAES_PATH}/`)) {
        await this.#manageSaes(path, request, response);
      } else if (isWatchPath(path)) {
        await answerWatchCall(request, response, {
          ...this.#deps.watch,
          readBody: async (of) => readRequestBody(await readBody(of, this.#deps.maxBodyBytes)),
        });
      } else throw new ApiError("route_not_found");
    } catch (thrown) {
      sendError(response, thrown, logger);
    }
  }

  async #infer(path: InferencePath, request: IncomingMessage, response: ServerResponse): Promise<void> {
    const label = labelOf(request);
    const logger = label === null ? this.#deps.logger : this.#deps.logger.with({ request: label.requestId });
    const account = new RequestAccount(label, (event) => this.#deps.hub.publish(event));
    const left = new AbortController();
    response.once("close", () => {
      left.abort();
      // Half closed by a client that left: nothing more is to be said on it.
      if (!response.writableFinished) request.socket.destroy();
    });
    const exchange = { response, account, gone: left.signal, logger, salt: saltOf(request) };
    try {
      if (this.#draining) throw new ApiError("draining", { source: "backend" });
      const strict = isStrict(request);
      await this.#answer(path, await readBody(request, this.#deps.maxBodyBytes), strict, exchange);
    } catch (thrown) {
      const gone = left.signal.aborted;
      account.end(gone ? "cancelled" : "failed");
      if (gone) return;
      // The rest of an unread body must not be taken for the next request.
      sendError(response, thrown, logger, request.complete ? {} : { connection: "close" });
      if (!request.complete) request.resume();
    }
  }

  async #answer(path: InferencePath, bytes: Uint8Array, strict: boolean, exchange: Exchange): Promise<void> {
    const { model, embedding } = this.#deps;
    const body = readRequestBody(bytes);
    checkModelName(body, model.name);
    switch (path) {
      case "/v1/chat/completions":
        return await this.#generate(readChatRequest(body, model, strict), exchange);
      case "/v1/completions":
        return await this.#generate(readCompletionRequest(body, model, strict), exchange);
      case "/v1/embeddings":
        return await answerEmbeddings(readEmbeddingRequest(body, model, strict), exchange, embedding);
    }
  }

  /** What is known of the SAEs, without a slot. A ranking computes, so it alone has an account. */
  async #answerSaes(place: SaePlace, request: IncomingMessage, response: ServerResponse): Promise<void> {
    const { model, ranker, maxBodyBytes, embedding, hub } = this.#deps;
    const left = new AbortController();
    response.once("close", () => left.abort());
    const label = place.kind === "rank" ? labelOf(request) : null;
    const account = new RankingAccount(new RequestAccount(label, (event) => hub.publish(event)), embedding.runs);
    const call = {
      place,
      query: (request.url ?? "").split("?", 2)[1] ?? "",
      body: async () => readRequestBody(await readBody(request, maxBodyBytes)),
      gone: left.signal,
      begin: (promptTokens: number) => account.begin(promptTokens),
      progress: (computedTokens: number) => account.progress(computedTokens),
    };
    const release = this.#deps.saes.hold(model.saes);
    try {
      const answer = await answerSaeCall(call, { model, ranker });
      account.end("completed");
      sendJson(response, 200, answer);
    } catch (thrown) {
      account.end(left.signal.aborted ? "cancelled" : "failed");
      throw thrown;
    } finally {
      release();
    }
  }

  /** An SAE that is swapped meanwhile serves this request to its end. */
  async #generate(plan: GenerationPlan, exchange: Exchange): Promise<void> {
    // What watches it is settled in the same turn, when its tasks are made.
    const release = this.#deps.saes.hold([...saesOf(plan), ...this.#deps.watch.watching.saesInUse()]);
    try {
      await answerGeneration(plan, exchange, this.#deps.generation);
    } finally {
      release();
    }
  }

  /** The host's own routes, for operators: nobody else reaches the socket. */
  async #manageSaes(path: string, request: IncomingMessage, response: ServerResponse): Promise<void> {
    const { management, maxBodyBytes } = this.#deps;
    if (path === ENGINE_SAES_PATH) {
      allowOnly("POST", request, response);
      sendJson(response, 200, await management.attach(readRequestBody(await readBody(request, maxBodyBytes))));
      return;
    }
    allowOnly("DELETE", request, response);
    const id = decodedSegment(path.slice(ENGINE_SAES_PATH.length + 1));
    management.detach(id);
    sendJson(response, 200, { id, detached: true });
  }

  #streamEvents(response: ServerResponse): void {
    response.writeHead(200, { "content-type": "application/x-ndjson", "cache-control": "no-store" });
    this.#eventStreams.add(response);
    const leave = this.#deps.hub.connect((line, droppable) => {
      if (droppable && response.writableNeedDrain) return;
      response.write(line);
    });
    response.once("close", () => {
      leave();
      this.#eventStreams.delete(response);
    });
  }
}

function allowOnly(method: string, request: IncomingMessage, response: ServerResponse): void {
  if (request.method === method) return;
  response.setHeader("allow", method);
  throw new ApiError("method_not_allowed");
}

function decodedSegment(text: string): string {
  try {
    return decodeURIComponent(text);
  } catch {
    throw new ApiError("route_not_found");
  }
}
