import { open, stat, writeFile } from "node:fs/promises";
import { accountBoardPath } from "../ports/account-board.ts";
import type { EngineOptions } from "../ports/engine-options.ts";
import { type OperatorWishes, wishedSaes } from "../ports/operator-wishes.ts";
import type { Launcher } from "../supervisor/launcher.ts";

export interface NativeLauncherOptions {
  readonly engine: Omit<EngineOptions, "socket_path" | "accounts_path" | "watch_lists">;
  /** What operators have changed since, asked at every start. */
  readonly wishes: () => Promise<OperatorWishes>;
  /** The program that has the `engine` command. */
  readonly program: string;
}

const GGUF_MAGIC = "GGUF";
/** Magic, version, tensor count and key count. */
const GGUF_HEADER_BYTES = 24;

/** Starts `steerage-backend engine`, the native engine, with its options in a file beside the socket. */
export function nativeLauncher(options: NativeLauncherOptions): Launcher {
  return {
    engine: "native",
    async findFault() {
      const { model_path: model, speculation } = options.engine;
      for (const file of [model, speculation?.model_path ?? null]) {
        const fault = file === null ? null : await ggufFault(file);
        if (fault !== null) return fault;
      }
      for (const { path, required } of wishedSaes(options.engine.saes, await options.wishes())) {
        const fault = required ? await saeFault(path) : null;
        if (fault !== null) return fault;
      }
      return null;
    },
    async prepare(socketPath) {
      const file = `${socketPath}.json`;
      const wishes = await options.wishes();
      const engineOptions: EngineOptions = {
        ...options.engine,
        saes: wishedSaes(options.engine.saes, wishes),
        watch_lists: wishes.watch_lists,
        socket_path: socketPath,
        accounts_path: accountBoardPath(socketPath),
      };
      await writeFile(file, JSON.stringify(engineOptions), { mode: 0o600 });
      return {
        command: process.execPath,
        arguments: [options.program, "engine", "--options-json", file],
        // The addon finds the libraries of its device by itself (backend/native/load.ts).
        environment: {},
      };
    },
  };
}

/** A fault that the first bytes show. A file cut further on is found by the engine when it loads. */
async function ggufFault(file: string): Promise<string | null> {
  let handle;
  try {
    handle = await open(file, "r");
  } catch (error) {
    return `${file}: ${whyUnreadable(error)}`;
  }
  try {
    const header = Buffer.alloc(GGUF_HEADER_BYTES);
    const { bytesRead } = await handle.read(header, 0, GGUF_HEADER_BYTES, 0);
    if (bytesRead >= 4 && header.toString("latin1", 0, 4) !== GGUF_MAGIC) return `${file}: not a GGUF file`;
    if (bytesRead < GGUF_HEADER_BYTES) return `${file}: truncated, it ends inside its header`;
    const version = header.readUInt32LE(4);
    return version === 2 || version === 3 ? null : `${file}: GGUF version ${version} is not supported`;
  } catch (error) {
    return `${file}: ${whyUnreadable(error)}`;
  } finally {
    await handle.close();
  }
}

/** What is in the folder is the engine's to judge. */
async function saeFault(folder: string): Promise<string | null> {
  try {
    return (await stat(folder)).isDirectory() ? null : `${folder}: is not a folder`;
  } catch (error) {
    return `${folder}: ${whyUnreadable(error)}`;
  }
}

function whyUnreadable(error: unknown): string {
  const code = error instanceof Error && "code" in error ? error.code : null;
  if (code === "ENOENT") return "does not exist";
  if (code === "EISDIR") return "is a folder, not a file";
  if (code === "EACCES") return "may not be read by this user";
  return error instanceof Error ? error.message : String(error);
}
