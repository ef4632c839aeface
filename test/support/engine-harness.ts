import { mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { Agent, fetch, type Response } from "undici";
import type { z } from "zod";
import { startEngine } from "../../backend/engine/load/start-engine.ts";
import type { RunningEngine } from "../../backend/engine/load/running-engine.ts";
import type { NativeAddon } from "../../backend/native/binding.ts";
import { ENGINE_EVENTS_PATH, engineEventSchema, type EngineEvent } from "../../backend/ports/engine-events.ts";
import { engineOptionsSchema } from "../../backend/ports/engine-options.ts";
import { systemClock } from "../../backend/system-clock.ts";
import { createLogger } from "../../shared/logging/logger.ts";
import { SseParser } from "../../shared/sse/parser.ts";

export interface EngineHarness {
  readonly engine: RunningEngine;
  /** Lines of the engine's log. */
  readonly log: string[];
  /** Events as a host would read them, in order. */
  readonly events: EngineEvent[];
  post(path: string, body: unknown, init?: PostInit): Promise<Response>;
  get(path: string, init?: GetInit): Promise<Response>;
  /** Waits until an event of this kind for this request is there. */
  ended(requestId: string): Promise<Extract<EngineEvent, { type: "ended" }>>;
  /** Harmless when called again. */
  stop(): Promise<void>;
}
export interface GetInit {
  readonly method?: string;
  readonly body?: string;
  readonly headers?: Record<string, string>;
}
export interface PostInit {
  readonly headers?: Record<string, string>;
  readonly signal?: AbortSignal;
}

/** An engine in this process on a socket of its own, with a host's ear on its events. */
export async function openEngine(
  addon: NativeAddon,
  over: Partial<z.input<typeof engineOptionsSchema>>,
): Promise<EngineHarness> {
  const folder = mkdtempSync(join(tmpdir(), "steerage-engine-"));
  const socketPath = join(folder, "engine.sock");
  const options = engineOptionsSchema.parse({
    model: "m",
    socket_path: socketPath,
    model_path: "none.gguf",
    saes: [],
    allow_grammar: true,
    slots: 2,
    max_pending: 2,
    context_length: 0,
    kv_cache_type: "f16",
    flash_attention: true,
    threads: 1,
    gpu_layers: 0,
    tensor_split: [],
    log_level: "info",
    log_format: "json",
    ...over,
  });
  const log: string[] = [];
  const logger = createLogger({ level: "info", format: "json", clock: systemClock, write: (line) => log.push(line) });
  const engine = await startEngine(options, { addon, clock: systemClock, logger });
  await engine.listen(socketPath);

  const dispatcher = new Agent({ connect: { socketPath } });
  const events: EngineEvent[] = [];
  const listening = listen(dispatcher, events);
  // Connected, or a stop that follows at once would meet a connection on its way.
  while (events.length === 0) await new Promise((resolve) => setImmediate(resolve));
  const stop = async (): Promise<void> => {
    await engine.stop(5_000);
    await listening;
    await dispatcher.close();
    rmSync(folder, { recursive: true, force: true });
  };
  let stopped: Promise<void> | null = null;
  return {
    engine,
    log,
    events,
    post: (path, body, init = {}) =>
      fetch(`http://engine${path}`, {
        method: "POST",
        body: typeof body === "string" || body instanceof Uint8Array ? body : JSON.stringify(body),
        headers: { "content-type": "application/json", ...init.headers },
        dispatcher,
        ...(init.signal === undefined ? {} : { signal: init.signal }),
      }),
    get: (path, init = {}) => fetch(`http://engine${path}`, { ...init, dispatcher }),
    ended: async (requestId) => {
      for (;;) {
        for (const event of events) if (event.type === "ended" && event.request_id === requestId) return event;
        await new Promise((resolve) => setImmediate(resolve));
      }
    },
    stop: () => (stopped ??= stop()),
  };
}

async function listen(dispatcher: Agent, events: EngineEvent[]): Promise<void> {
  const response = await fetch(`http://engine${ENGINE_EVENTS_PATH}`, { dispatcher });
  let rest = "";
  const decoder = new TextDecoder();
  for await (const chunk of response.body ?? []) {
    const lines = (rest + decoder.decode(chunk, { stream: true })).split("\n");
    rest = lines.pop() ?? "";
    for (const line of lines) events.push(engineEventSchema.parse(JSON.parse(line)));
  }
}

/** The data of every event of a stream, [DONE] included. */
export async function streamData(response: Response): Promise<string[]> {
  const data: string[] = [];
  const parser = new SseParser({ maxEventLength: 1_000_000 });
  const decoder = new TextDecoder();
  for await (const chunk of response.body ?? []) {
    for (const event of parser.push(decoder.decode(chunk, { stream: true }))) data.push(event.data);
  }
  return data;
}

/** For clients that take a `fetch` of their own: whatever origin they name, the request goes to this engine. */
export function fetchFrom(engine: EngineHarness): typeof globalThis.fetch {
  return async (input, init) => {
    const { pathname } = new URL(input instanceof Request ? input.url : input);
    if (typeof init?.body !== "string") throw new Error("only requests with a text body");
    const { signal } = init;
    const answer = await engine.post(pathname, init.body, signal == null ? {} : { signal });
    return new globalThis.Response(answer.body, { status: answer.status, headers: [...answer.headers] });
  };
}
