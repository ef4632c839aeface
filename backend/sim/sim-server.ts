import { randomUUID } from "node:crypto";
import { createServer, type IncomingMessage, type Server, type ServerResponse } from "node:http";
import { ApiError, toApiError } from "../../shared/errors/api-error.ts";
import {
  ENGINE_ATTEMPT_HEADER,
  ENGINE_CACHE_SALT_HEADER,
  ENGINE_REQUEST_ID_HEADER,
  STEERING_HEADER,
} from "../../shared/protocol/headers.ts";
import type { AttachedSae } from "../../shared/protocol/report.ts";
import { SSE_DONE, SSE_HEADERS, sseData } from "../../shared/sse/writer.ts";
import type { Clock } from "../../shared/time/clock.ts";
import { readBody, sendError, sendJson } from "../http-answers.ts";
import { ENGINE_EVENTS_PATH, type EngineReady } from "../ports/engine-events.ts";
import { SimAccount, type Work } from "./account.ts";
import { AnswerShapes, embeddingAnswer, embeddingOf, usageOfWork } from "./answers.ts";
import { Cancelled, generate, type GeneratedToken, pause, ScriptedCut, ScriptedRefusal } from "./generation.ts";
import { metricsText } from "./metrics.ts";
import { PrefixMemory } from "./prefix-memory.ts";
import { type GenerationRequest, readChat, readCompletion, readEmbedding } from "./request.ts";
import { type SimScript, scriptOf } from "./script.ts";
import { Slots } from "./slots.ts";
import { hashOf, seededRandom } from "./text.ts";

const MAX_BODY_BYTES = 10 * 2 ** 20;
const DEFAULT_ATTEMPT = 1;

export interface SimOptions {
  readonly model: string;
  readonly slots: number;
  readonly maxPending: number;
  readonly contextLength: number;
  readonly kvCells: number;
  readonly seed: number;
  readonly saes: readonly AttachedSae[];
  readonly script: SimScript;
}

export interface SimDeps {
  readonly clock: Clock;
  readonly crash: () => void;
}

/** One call on its way: what every step of it needs. */
interface Call {
  readonly work: Work;
  readonly script: SimScript;
  readonly signal: AbortSignal;
  readonly salt: string;
  readonly response: ServerResponse;
}

/** The scripted engine's HTTP face: OpenAI's routes, the events stream of an engine, vLLM's metrics. */
export class SimServer {
  readonly server: Server;
  readonly #options: SimOptions;
  readonly #deps: SimDeps;
  readonly #slots: Slots;
  readonly #account: SimAccount;
  readonly #prefixes = new PrefixMemory();
  readonly #created: number;
  readonly #dice: () => number;

  constructor(options: SimOptions, deps: SimDeps) {
    this.#options = options;
    this.#deps = deps;
    this.#slots = new Slots(options.slots, options.maxPending);
    this.#account = new SimAccount({
      clock: deps.clock,
      slots: this.#slots,
      ready: readyOf(options),
      kvCells: options.kvCells,
    });
    this.#created = Math.floor(deps.clock.nowMs() / 1_000);
    this.#dice = seededRandom(options.seed);
    this.server = createServer((request, response) => void this.#answer(request, response));
  }

  async #answer(request: IncomingMessage, response: ServerResponse): Promise<void> {
    response.on("error", () => undefined);
    const path = (request.url ?? "/").split("?", 1)[0] ?? "/";
    const route = `${request.method ?? ""} ${path}`;
    try {
      if (route === "GET /health") sendJson(response, 200, { status: "ok" });
      else if (route === "GET /v1/models") sendJson(response, 200, this.#models());
      else if (route === "GET /metrics") this.#metrics(response);
      else if (route === `GET ${ENGINE_EVENTS_PATH}`) this.#events(response);
      else if (route === "POST /v1/chat/completions") await this.#infer(request, response, readChat);
      else if (route === "POST /v1/completions") await this.#infer(request, response, readCompletion);
      else if (route === "POST /v1/embeddings") await this.#infer(request, response, null);
      else throw new ApiError("route_not_found", { source: "backend" });
    } catch (thrown) {
      sendError(response, toApiError(thrown));
    }
  }

  async #infer(
    request: IncomingMessage,
    response: ServerResponse,
    reader: ((document: unknown, saes: readonly AttachedSae[]) => GenerationRequest) | null,
  ): Promise<void> {
    const gone = new AbortController();
    response.once("close", () => gone.abort());
    const body = await readBody(request, MAX_BODY_BYTES);
    const work = this.#account.begin(idOf(request));
    try {
      const document = parseObject(body);
      const header = headerOf(request, "x-sim");
      const salt = headerOf(request, ENGINE_CACHE_SALT_HEADER);
      if (reader === null) {
        const job = readEmbedding(document);
        const script = this.#scriptFor(job.model, header, job.sim);
        const call = { work, script, signal: gone.signal, salt, response };
        await this.#withSlot(call, () => this.#embed(call, job.inputs, job.base64));
      } else {
        const job = reader(document, this.#options.saes);
        const script = this.#scriptFor(job.model, header, job.sim);
        const call = { work, script, signal: gone.signal, salt, response };
        await this.#withSlot(call, () => this.#generate(call, job));
      }
      this.#account.end(work, "completed", "stop");
    } catch (thrown) {
      this.#fail(work, response, thrown);
    }
  }

  #fail(work: Work, response: ServerResponse, thrown: unknown): void {
    if (thrown instanceof Cancelled) {
      this.#account.end(work, "cancelled", "abort");
      response.destroy();
      return;
    }
    this.#account.end(work, "failed", "error");
    if (thrown instanceof ScriptedCut) {
      response.destroy();
      return;
    }
    if (thrown instanceof ScriptedRefusal) {
      refuse(response, thrown.status);
      return;
    }
    const error = toApiError(thrown);
    if (response.headersSent) response.end(sseData(JSON.stringify(error.toBody())));
    else sendError(response, error);
  }

  #scriptFor(model: string, header: string, member: unknown): SimScript {
    const at = model.indexOf("@");
    const name = at === -1 ? model : model.slice(0, at);
    if (name !== this.#options.model) throw new ApiError("model_not_found", { param: "model", source: "backend" });
    return scriptOf(this.#options.script, { modelSuffix: at === -1 ? "" : model.slice(at + 1), header, member });
  }

  async #withSlot(call: Call, use: () => Promise<void>): Promise<void> {
    const { script, signal } = call;
    if (script.status !== null) throw new ScriptedRefusal(script.status);
    if (this.#dice() < script.fail_rate) throw new ApiError("engine_failed", { source: "backend" });
    const slot = await this.#slots.take(signal);
    if (slot === "full") throw new ApiError("engine_busy", { source: "backend" });
    if (slot === "cancelled") throw new Cancelled();
    this.#account.changed();
    try {
      if (script.hang) await pause(2 ** 31 - 1, signal, this.#deps.clock);
      await use();
    } finally {
      slot();
      this.#account.changed();
    }
  }

  async #generate(call: Call, job: GenerationRequest): Promise<void> {
    const { script, work, signal, salt, response } = call;
    const room = this.#options.contextLength - job.prompt.length;
    if (room < 1) {
      throw new ApiError("context_length_exceeded", {
        message: `The prompt has ${job.prompt.length} tokens, the context window ${this.#options.contextLength}.`,
        source: "backend",
      });
    }
    const shapes = new AnswerShapes(job, {
      id: `${job.kind === "chat" ? "chatcmpl" : "cmpl"}-${randomUUID()}`,
      created: Math.floor(this.#deps.clock.nowMs() / 1_000),
      model: job.model,
    });
    const tokens = generate(
      {
        script,
        prompt: job.prompt,
        salt,
        seed: job.seed ?? hashOf(`${this.#options.seed} ${job.prompt.join(" ")}`),
        limit: Math.min(job.maxTokens ?? room, room),
        ignoreEnd: job.ignoreEnd,
      },
      work,
      signal,
      { clock: this.#deps.clock, account: this.#account, prefixes: this.#prefixes, crash: this.#deps.crash },
    );
    if (job.stream) {
      await pause(script.header_delay_ms, signal, this.#deps.clock);
      await writeStream({ job, shapes, tokens, work, response });
    } else await writeWhole({ job, shapes, tokens, work, response });
  }

  async #embed({ work, script, signal, response }: Call, inputs: readonly (readonly string[])[], base64: boolean) {
    for (const input of inputs) this.#account.addPrompt(work, input.length, 0);
    await pause(script.ttft_ms, signal, this.#deps.clock);
    const answer = embeddingAnswer(this.#options.model, inputs.map(embeddingOf), base64, work.computedPrompt);
    response.setHeader(STEERING_HEADER, "none");
    sendJson(response, 200, answer);
  }

  #models(): unknown {
    const { model, contextLength } = this.#options;
    const entry = {
      id: model,
      object: "model",
      created: this.#created,
      owned_by: "steerage-sim",
      max_model_len: contextLength,
    };
    return { object: "list", data: [entry] };
  }

  #metrics(response: ServerResponse): void {
    response.writeHead(200, { "content-type": "text/plain; version=0.0.4; charset=utf-8" });
    response.end(metricsText(this.#options.model, this.#slots, this.#account));
  }

  #events(response: ServerResponse): void {
    response.writeHead(200, { "content-type": "application/x-ndjson" });
    const stop = this.#account.follow((event) => response.write(`${JSON.stringify(event)}\n`));
    response.once("close", stop);
  }
}

interface Writing {
  readonly job: GenerationRequest;
  readonly shapes: AnswerShapes;
  readonly tokens: AsyncGenerator<GeneratedToken>;
  readonly work: Work;
  readonly response: ServerResponse;
}

async function writeWhole({ job, shapes, tokens, work, response }: Writing): Promise<void> {
  let text = "";
  let finishReason = "stop";
  for await (const token of tokens) {
    text += token.text;
    finishReason = token.finishReason ?? finishReason;
  }
  response.setHeader(STEERING_HEADER, job.receipt);
  sendJson(response, 200, shapes.whole(text, finishReason, usageOfWork(work), job.receipt));
}

async function writeStream({ job, shapes, tokens, work, response }: Writing): Promise<void> {
  response.writeHead(200, { ...SSE_HEADERS, ...(job.receipt === "none" ? { [STEERING_HEADER]: "none" } : {}) });
  response.flushHeaders();
  const send = async (document: unknown): Promise<void> => {
    if (response.write(sseData(JSON.stringify(document))) || response.destroyed) return;
    await new Promise<void>((resolve) => {
      const go = (): void => {
        response.off("drain", go).off("close", go);
        resolve();
      };
      response.on("drain", go).on("close", go);
    });
  };
  const opening = shapes.opening();
  if (opening !== null) await send(opening);
  let finishReason = "stop";
  for await (const token of tokens) {
    if (token.text !== "") await send(shapes.token(token.text));
    finishReason = token.finishReason ?? finishReason;
  }
  await send(shapes.finish(finishReason));
  if (job.receipt !== "none") await send(shapes.steerage(job.receipt));
  if (job.includeUsage) await send(shapes.usage(usageOfWork(work)));
  response.end(SSE_DONE);
}

function refuse(response: ServerResponse, status: number): void {
  const code = status === 429 ? "queue_full" : status >= 500 ? "engine_busy" : "invalid_value";
  const body = new ApiError(code, { message: "The script says so.", source: "backend" }).toBody();
  response.writeHead(status, {
    "content-type": "application/json",
    ...(status === 429 || status === 503 ? { "retry-after": "1" } : {}),
  });
  response.end(JSON.stringify(body));
}

function readyOf(options: SimOptions): EngineReady {
  return {
    type: "ready",
    model: options.model,
    engine: "sim",
    slots: options.slots,
    context_length: options.contextLength,
    max_output: null,
    capabilities: ["chat", "completions", "embeddings"],
    saes: [...options.saes],
  };
}

function parseObject(body: Buffer): unknown {
  let document: unknown;
  try {
    document = JSON.parse(body.toString("utf8"));
  } catch {
    throw new ApiError("invalid_json", { source: "backend" });
  }
  if (typeof document !== "object" || document === null || Array.isArray(document))
    throw new ApiError("invalid_body", { source: "backend" });
  return document;
}

function idOf(request: IncomingMessage): Work["id"] {
  const requestId = headerOf(request, ENGINE_REQUEST_ID_HEADER);
  if (requestId === "") return null;
  const attempt = Number(headerOf(request, ENGINE_ATTEMPT_HEADER));
  return { requestId, attempt: Number.isInteger(attempt) && attempt > 0 ? attempt : DEFAULT_ATTEMPT };
}

function headerOf(request: IncomingMessage, name: string): string {
  const value = request.headers[name];
  return typeof value === "string" ? value : "";
}
