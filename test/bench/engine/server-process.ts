import { spawn, type ChildProcess } from "node:child_process";
import { readFileSync } from "node:fs";
import { Pool } from "undici";

export interface ServerCommand {
  /** How it is called in results. */
  readonly name: string;
  readonly command: string;
  readonly args: readonly string[];
  readonly socketPath: string;
}

const START_LIMIT_MS = 120_000;
const STOP_LIMIT_MS = 20_000;
const LOG_LINES = 40;
/** Clock ticks of /proc, which Linux fixes for programs. */
const TICKS_PER_SECOND = 100;

/** Those that run; they must not outlive a bench that is broken off. */
const running = new Set<ChildProcess>();
process.once("exit", () => {
  for (const child of running) child.kill("SIGKILL");
});
for (const signal of ["SIGINT", "SIGTERM"] as const) process.once(signal, () => process.exit(1));

/** A server under measurement: a process that answers HTTP on a unix socket. */
export class ServerProcess {
  readonly name: string;
  readonly pool: Pool;
  readonly #child: ChildProcess;
  readonly #log: string[] = [];
  readonly #exited: Promise<void>;
  #ended = false;

  private constructor({ name, command, args, socketPath }: ServerCommand) {
    this.name = name;
    this.pool = new Pool("http://server", { socketPath, headersTimeout: 0, bodyTimeout: 0 });
    this.#child = spawn(command, args, { stdio: ["ignore", "pipe", "pipe"] });
    for (const stream of [this.#child.stdout, this.#child.stderr]) {
      stream?.setEncoding("utf8").on("data", (text: string) => {
        this.#log.push(...text.trimEnd().split("\n"));
        this.#log.splice(0, this.#log.length - LOG_LINES);
      });
    }
    running.add(this.#child);
    this.#exited = new Promise((resolve) => {
      const ended = () => {
        running.delete(this.#child);
        this.#ended = true;
        resolve();
      };
      this.#child.once("exit", ended).once("error", (error) => {
        this.#log.push(error.message);
        ended();
      });
    });
  }

  /** Resolves when `/health` answers 200. Rejects with the end of its log when it dies before. */
  static async start(what: ServerCommand): Promise<ServerProcess> {
    const server = new ServerProcess(what);
    const end = Date.now() + START_LIMIT_MS;
    while (!server.#ended && Date.now() < end) {
      if (await server.#healthy()) return server;
      await new Promise((resolve) => setTimeout(resolve, 50));
    }
    await server.stop();
    throw new Error(`${server.name} did not start:\n${server.#log.join("\n")}`);
  }

  async #healthy(): Promise<boolean> {
    try {
      const { statusCode, body } = await this.pool.request({ path: "/health", method: "GET" });
      await body.dump();
      return statusCode === 200;
    } catch {
      return false;
    }
  }

  /** CPU time of all its threads so far. */
  get cpuSeconds(): number {
    const stat = readFileSync(`/proc/${this.#child.pid}/stat`, "utf8");
    // The program's name is in brackets and may hold anything; times are the 14th and 15th field.
    const fields = stat.slice(stat.lastIndexOf(")") + 2).split(" ");
    return (Number(fields[11]) + Number(fields[12])) / TICKS_PER_SECOND;
  }

  /** Resident memory, bytes. */
  get residentBytes(): number {
    const status = readFileSync(`/proc/${this.#child.pid}/status`, "utf8");
    return Number(/^VmRSS:\s+(\d+) kB$/mu.exec(status)?.[1] ?? Number.NaN) * 1_024;
  }

  async stop(): Promise<void> {
    await this.pool.destroy();
    if (this.#ended) return;
    this.#child.kill("SIGTERM");
    const hard = setTimeout(() => this.#child.kill("SIGKILL"), STOP_LIMIT_MS);
    await this.#exited;
    clearTimeout(hard);
  }
}
