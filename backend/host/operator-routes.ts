import { createHash, timingSafeEqual } from "node:crypto";
import { request as httpRequest, type IncomingMessage, type ServerResponse } from "node:http";
import { ApiError } from "../../shared/errors/api-error.ts";
import { readBody } from "../http-answers.ts";
import { ENGINE_SAES_PATH } from "../ports/engine-events.ts";
import type { Replica } from "./replica.ts";

export interface OperatorDeps {
  readonly replicas: ReadonlyMap<string, Replica>;
  readonly token: string;
  readonly maxBodyBytes: number;
}

const SAES = /^\/host\/v1\/models\/([^/]+)\/saes(?:\/([^/]+))?$/;
const LOOPBACK = /^(?:127\.|::1$|::ffff:127\.)/;

/** The operator's own routes: SAEs of a running model, from this machine only and with the operator's token. */
export class OperatorRoutes {
  readonly #deps: OperatorDeps;
  readonly #digest: Buffer;

  constructor(deps: OperatorDeps) {
    this.#deps = deps;
    this.#digest = sha256(deps.token);
  }

  handles(path: string): boolean {
    return SAES.test(path);
  }

  /** Throws an ApiError before the engine is asked; its answer is passed on as it is. */
  async answer(path: string, request: IncomingMessage, response: ServerResponse): Promise<void> {
    this.#authorise(request);
    const [, model = "", id] = SAES.exec(path) ?? [];
    const method = id === undefined ? "POST" : "DELETE";
    if (request.method !== method) {
      response.setHeader("allow", method);
      throw new ApiError("method_not_allowed", { source: "backend" });
    }
    const replica = this.#deps.replicas.get(decoded(model));
    if (replica === undefined) {
      throw new ApiError("model_not_found", { source: "backend", message: "This host has no model of this name." });
    }
    const body = await readBody(request, this.#deps.maxBodyBytes);
    const { engine } = replica;
    if (engine === null) {
      throw new ApiError("no_replica_available", { source: "backend", retryAfterSeconds: replica.retryInSeconds() });
    }
    await passOn({ socketPath: engine.socketPath, method, path: enginePath(id), body }, response);
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

const enginePath = (id: string | undefined): string =>
  id === undefined ? ENGINE_SAES_PATH : `${ENGINE_SAES_PATH}/${id}`;

interface Passed {
  readonly socketPath: string;
  readonly method: string;
  readonly path: string;
  readonly body: Buffer;
}

function passOn({ socketPath, method, path, body }: Passed, response: ServerResponse): Promise<void> {
  return new Promise((resolve, reject) => {
    const headers = { "content-type": "application/json", "content-length": body.length };
    const asked = httpRequest({ socketPath, method, path, headers }, (answer) => {
      response.writeHead(answer.statusCode ?? 502, { "content-type": "application/json" });
      answer.pipe(response);
      answer.once("end", resolve).once("error", reject);
    });
    asked.once("error", (cause) => reject(new ApiError("no_replica_available", { source: "backend", cause })));
    asked.end(body);
  });
}

function decoded(text: string): string {
  try {
    return decodeURIComponent(text);
  } catch {
    return "";
  }
}

const sha256 = (text: string): Buffer => createHash("sha256").update(text).digest();
