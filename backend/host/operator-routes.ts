import { createHash, timingSafeEqual } from "node:crypto";
import type { IncomingMessage, ServerResponse } from "node:http";
import { z } from "zod";
import { ApiError } from "../../shared/errors/api-error.ts";
import type { Logger } from "../../shared/logging/logger.ts";
import { readBody } from "../http-answers.ts";
import type { EngineOptions } from "../ports/engine-options.ts";
import { attachSaeSchema, type OperatorWishes } from "../ports/operator-wishes.ts";
import { watchListSchema } from "../ports/watch-lists.ts";
import {
  type OperatorChanges,
  withAttached,
  withDetached,
  withoutWatchList,
  withWatchList,
} from "./operator-changes.ts";
import { askEngine, type EngineAnswer, passOn, type OperatorQuestion } from "./operator-exchange.ts";
import type { OperatorPlace } from "./operator-paths.ts";
import type { Replica } from "./replica.ts";

export interface OperatorDeps {
  readonly replicas: ReadonlyMap<string, Replica>;
  readonly changes: OperatorChanges;
  /** SAEs of a model's configuration. */
  readonly configuredSaes: (model: string) => EngineOptions["saes"];
  readonly token: string;
  readonly maxBodyBytes: number;
  readonly logger: Logger;
}

const objectSchema = z.record(z.string(), z.unknown());
const LOOPBACK = /^(?:127\.|::1$|::ffff:127\.)/;

/**
 * The operator's own routes, from this machine only and with the operator's token: SAEs of a running model, its watch
 * lists, its tokenizer and its template.
 */
export class OperatorRoutes {
  readonly #deps: OperatorDeps;
  readonly #digest: Buffer;

  constructor(deps: OperatorDeps) {
    this.#deps = deps;
    this.#digest = sha256(deps.token);
  }

  /** Throws an ApiError before the engine is asked; its answer is passed on as it is. */
  async answer(place: OperatorPlace, request: IncomingMessage, response: ServerResponse): Promise<void> {
    this.#authorise(request);
    const method = request.method ?? "GET";
    if (!place.methods.includes(method)) {
      response.setHeader("allow", place.methods.join(", "));
      throw new ApiError("method_not_allowed", { source: "backend" });
    }
    const named = place.model === null ? null : this.#replica(place.model);
    const body = await readBody(request, this.#deps.maxBodyBytes);
    const replica = named ?? this.#replicaOf(body);
    const question = { method, path: place.enginePath + queryOf(request), headers: passedHeaders(request), body };
    const changes = place.kind === "saes" || method === "PUT" || method === "DELETE";
    if (changes) await this.#change(place, replica, question, response);
    else await passOn({ ...question, socketPath: socketOf(replica) }, response);
  }

  /** Asks the engine for a change and, once it is made, remembers it for the engines to come. */
  async #change(place: OperatorPlace, replica: Replica, question: Question, response: ServerResponse): Promise<void> {
    const { changes } = this.#deps;
    const { answer, remembered } = await changes.change(replica.name, async () => {
      const told = await askEngine({ ...question, socketPath: socketOf(replica) });
      const made = told.status === 400 && this.#knows(place, replica.name) ? detachedAnswer(place, told) : told;
      if (made.status !== 200) return { answer: made, remembered: null };
      const wishes =
        place.kind === "saes"
          ? this.#afterSae(place, replica.name, question.body)
          : afterWatchList(place, question.method, this.#deps.changes.of(replica.name), made.body);
      return { answer: made, remembered: await changes.remember(replica.name, wishes) };
    });
    if (remembered !== null) {
      const { method, path } = question;
      this.#deps.logger.info("an operator changed a model", { replica: replica.name, method, path, remembered });
    }
    const body = remembered === null ? answer.body : withMember(answer.body, { remembered });
    if (response.destroyed) return;
    response.writeHead(answer.status, { ...answer.headers, "content-length": String(body.length) }).end(body);
  }

  /** It was attached here once: it can be detached even where this engine could not load it. */
  #knows({ kind, id }: OperatorPlace, model: string): boolean {
    return kind === "saes" && this.#deps.changes.of(model).attached.some((sae) => sae.id === id);
  }

  #afterSae({ id }: OperatorPlace, model: string, body: Buffer): OperatorWishes {
    const before = this.#deps.changes.of(model);
    const configured = this.#deps.configuredSaes(model);
    if (id !== null) return withDetached(before, id, configured);
    return withAttached(before, attachSaeSchema.parse(JSON.parse(body.toString("utf8"))), configured);
  }

  #replica(name: string): Replica {
    const replica = this.#deps.replicas.get(name);
    if (replica !== undefined) return replica;
    throw new ApiError("model_not_found", { source: "backend", message: "This host has no model of this name." });
  }

  /** The model that a body names; it need not where the host has one only. */
  #replicaOf(body: Buffer): Replica {
    const model = modelMember(body);
    if (typeof model === "string") return this.#replica(model);
    const { replicas } = this.#deps;
    const [only] = replicas.values();
    if (model === undefined && only !== undefined && replicas.size === 1) return only;
    const message = `'model' must be one of: ${[...replicas.keys()].join(", ") || "none is configured"}.`;
    throw new ApiError(model === undefined ? "missing_field" : "invalid_value", {
      source: "backend",
      message,
      param: "model",
    });
  }

  #authorise(request: IncomingMessage): void {
    const given = /^Bearer (.+)$/.exec(request.headers.authorization ?? "")?.[1] ?? "";
    const fromHere = LOOPBACK.test(request.socket.remoteAddress ?? "");
    if (fromHere && timingSafeEqual(sha256(given), this.#digest)) return;
    throw new ApiError("host_unauthorized", {
      source: "backend",
      message: "The operator's token is needed, from this machine.",
      cause: new Error(fromHere ? "wrong operator token" : "not from this machine"),
    });
  }
}

type Question = Omit<OperatorQuestion, "socketPath">;

function socketOf(replica: Replica): string {
  if (replica.engine !== null) return replica.engine.socketPath;
  throw new ApiError("no_replica_available", { source: "backend", retryAfterSeconds: replica.retryInSeconds() });
}

function afterWatchList({ id }: OperatorPlace, method: string, before: OperatorWishes, told: Buffer): OperatorWishes {
  if (method === "DELETE") return withoutWatchList(before, id ?? "");
  return withWatchList(before, watchListSchema.parse(JSON.parse(told.toString("utf8"))));
}

function queryOf({ url = "" }: IncomingMessage): string {
  const at = url.indexOf("?");
  return at < 0 ? "" : url.slice(at);
}

/** Those that decide what a reader of events gets. */
function passedHeaders({ headersDistinct }: IncomingMessage): Record<string, string> {
  const given = ["accept", "last-event-id"].flatMap((name) => {
    const value = headersDistinct[name]?.[0];
    return value === undefined ? [] : [[name, value]];
  });
  return { "content-type": "application/json", ...Object.fromEntries(given) };
}

const detachedAnswer = ({ id }: OperatorPlace, { headers }: EngineAnswer): EngineAnswer => ({
  status: 200,
  headers: { "content-type": headers["content-type"] ?? "application/json" },
  body: Buffer.from(JSON.stringify({ id, detached: true })),
});

function withMember(body: Buffer, member: object): Buffer {
  return Buffer.from(JSON.stringify({ ...objectSchema.parse(JSON.parse(body.toString("utf8"))), ...member }));
}

function modelMember(body: Buffer): unknown {
  let document: unknown;
  try {
    document = JSON.parse(body.toString("utf8"));
  } catch (cause) {
    throw new ApiError("invalid_json", { source: "backend", cause });
  }
  if (typeof document !== "object" || document === null || Array.isArray(document)) {
    throw new ApiError("invalid_body", { source: "backend" });
  }
  return "model" in document ? document.model : undefined;
}

const sha256 = (text: string): Buffer => createHash("sha256").update(text).digest();
