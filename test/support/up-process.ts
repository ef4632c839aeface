import { spawn, type ChildProcess } from "node:child_process";
import { readdirSync, readFileSync } from "node:fs";
import path from "node:path";
import { z } from "zod";
import { REPOSITORY } from "./source-tree.ts";
import { freePorts, until } from "./stack.ts";

const readySchema = z.object({
  ready: z.literal(true),
  base_url: z.string(),
  api_key: z.string().nullable(),
  model: z.string(),
  pid: z.int(),
});

/** `npm run up -- --json` as its own process. */
export class UpProcess {
  readonly exited: Promise<number | string | null>;
  stdout = "";
  stderr = "";
  readonly #child: ChildProcess;

  private constructor(args: readonly string[]) {
    this.#child = spawn(process.execPath, [path.join(REPOSITORY, "scripts/up.mjs"), "--json", ...args], {
      stdio: ["ignore", "pipe", "pipe"],
    });
    this.#child.stdout?.setEncoding("utf8").on("data", (text: string) => (this.stdout += text));
    this.#child.stderr?.setEncoding("utf8").on("data", (text: string) => (this.stderr += text));
    this.exited = new Promise((resolve) => this.#child.once("close", (code, signal) => resolve(code ?? signal)));
  }

  static async start(data: string, ports?: readonly number[]): Promise<UpProcess> {
    const [port, admin, metrics, backend] = (ports ?? (await freePorts(4))).map(String);
    const flags = { port, "admin-port": admin, "metrics-port": metrics, "backend-port": backend, data };
    return new UpProcess(Object.entries(flags).flatMap(([name, value]) => [`--${name}`, value ?? ""]));
  }

  get pid(): number {
    return this.#child.pid ?? 0;
  }

  async ready(): Promise<z.infer<typeof readySchema>> {
    await until("the stack is ready", () => this.stdout.includes("\n"), 50_000);
    return readySchema.parse(JSON.parse(this.stdout));
  }

  signal(name: NodeJS.Signals): void {
    this.#child.kill(name);
  }
}

/** Processes whose command line names a folder. */
export function processesOf(folder: string): number[] {
  return readdirSync("/proc").flatMap((name) => {
    if (!/^\d+$/.test(name)) return [];
    try {
      return readFileSync(`/proc/${name}/cmdline`, "utf8").includes(folder) ? [Number(name)] : [];
    } catch {
      return [];
    }
  });
}
