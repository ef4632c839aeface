import { createHash, timingSafeEqual } from "node:crypto";
import type { IncomingMessage, ServerResponse } from "node:http";
import { ApiError } from "../../shared/errors/api-error.ts";
import { readBody } from "../http-answers.ts";
import { passOn } from "./operator-exchange.ts";
import type { OperatorPlace } from "./operator-paths.ts";
import type { Replica } from "./replica.ts";

export interface OperatorDeps {
  readonly replicas: ReadonlyMap<string, Replica>;
  readonly token: string;
  readonly maxBodyBytes: number;
}

const LOOPBACK = /^(?:127\.|::1$|::ffff:127\.)/;

/**
 * The operator's own routes, from this machine only and with the operator's token: SAEs of a running model, its
 * tokenizer and its template.
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
    const { engine } = replica;
    if (engine === null) {
      throw new ApiError("no_replica_available", { source: "backend", retryAfterSeconds: replica.retryInSeconds() });
    }
    const headers = { "content-type": "application/json" };
    await passOn({ socketPath: engine.socketPath, method, path: place.enginePath, headers, body }, response);
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
