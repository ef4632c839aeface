import { existsSync, mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import path from "node:path";
import type { z } from "zod";
import type { engineOptionsSchema } from "../../../backend/ports/engine-options.ts";
import { ROOT } from "./root.ts";
import { BENCH_FOLDER, type BenchedModel } from "./benched-model.ts";
import { ServerProcess } from "./server-process.ts";

export const LLAMA_SERVER = path.join(BENCH_FOLDER, "llama-server/bin/llama-server");
const BACKEND = path.join(ROOT, "dist/backend/main.js");

/** The window of one request on both sides, tokens. */
const WINDOW_TOKENS = 1_024;
const BATCH_TOKENS = 512;
export const SAE_ID = "bench";

export interface ServerSize {
  readonly model: BenchedModel;
  readonly slots: number;
  /** 0 leaves the choice to the program. */
  readonly threads: number;
}

export function missingYardstick(): string | null {
  if (existsSync(LLAMA_SERVER)) return null;
  return "llama.cpp's server is not built yet: node test/bench/build-llama-server.mjs (about 15 minutes, once)";
}

/** Runs `measure` with servers that are all up, and ends them however it goes. */
export async function withServers<Result>(
  starts: readonly ((folder: string) => Promise<ServerProcess>)[],
  measure: (...servers: ServerProcess[]) => Promise<Result>,
): Promise<Result> {
  const folder = mkdtempSync(path.join(tmpdir(), "steerage-bench-"));
  const servers: ServerProcess[] = [];
  try {
    for (const start of starts) servers.push(await start(folder));
    return await measure(...servers);
  } finally {
    await Promise.all(servers.map((server) => server.stop()));
    rmSync(folder, { recursive: true, force: true });
  }
}

/** The product's engine process, as a host starts it; the cache is f16 as llama-server's is. */
export function engine({ model, slots, threads }: ServerSize): (folder: string) => Promise<ServerProcess> {
  return (folder) => {
    const socketPath = path.join(folder, "engine.sock");
    const options: z.input<typeof engineOptionsSchema> = {
      model: "m",
      socket_path: socketPath,
      model_path: model.path,
      saes: [{ id: SAE_ID, path: model.saeFolder, layer: null, serve_anyway: true }],
      slots,
      max_pending: slots,
      context_length: WINDOW_TOKENS,
      kv_cache_type: "f16",
      flash_attention: true,
      threads,
      gpu_layers: 0,
      tensor_split: [],
      log_level: "warn",
      log_format: "console",
    };
    const file = path.join(folder, "engine.json");
    writeFileSync(file, JSON.stringify(options));
    const args = [BACKEND, "engine", "--options-json", file];
    return ServerProcess.start({ name: "engine", command: process.execPath, args, socketPath });
  };
}

/** llama.cpp's own server with the same window, batch, cache type and threads; all else as it comes. */
export function llamaServer({ model, slots, threads }: ServerSize): (folder: string) => Promise<ServerProcess> {
  return (folder) => {
    const socketPath = path.join(folder, "llama.sock");
    const flags: Record<string, string | number> = {
      "--model": model.path,
      "--host": socketPath,
      "--ctx-size": WINDOW_TOKENS * slots,
      "--parallel": slots,
      "--batch-size": BATCH_TOKENS,
      "--ubatch-size": BATCH_TOKENS,
      "--flash-attn": "on",
      "--cache-type-k": "f16",
      "--cache-type-v": "f16",
      // Copying finished prompts to main memory would only cost it time here.
      "--cache-ram": 0,
      "--log-verbosity": 1,
      ...(threads === 0 ? {} : { "--threads": threads }),
    };
    const args = Object.entries(flags).flatMap(([name, value]) => [name, String(value)]);
    return ServerProcess.start({ name: "llama-server", command: LLAMA_SERVER, args, socketPath });
  };
}
