import { type ChildProcess, spawn } from "node:child_process";
import { once } from "node:events";
import { mkdtempSync, readdirSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import path from "node:path";
import type { FakeEdge } from "./fake-edge.ts";
import { REPOSITORY } from "./source-tree.ts";
import { freePorts } from "./stack.ts";

const BACKEND = path.join(REPOSITORY, "dist/backend/main.js");

export interface HostRequestInit {
  readonly path?: string;
  readonly headers?: Readonly<Record<string, string>>;
  readonly signal?: AbortSignal;
}

/** A host as operators run it, from the built program, in a folder of its own. */
export class HostProcess {
  readonly folder = mkdtempSync(path.join(tmpdir(), "steerage-host-"));
  readonly port: number;
  readonly log: string[] = [];
  readonly #config: Readonly<Record<string, unknown>>;
  #child: ChildProcess | null = null;

  private constructor(port: number, config: Readonly<Record<string, unknown>>) {
    this.port = port;
    this.#config = config;
  }

  /** Starts a host for this edge; `config` is merged over a configuration with one sim model named `sim`. */
  static async start(edge: FakeEdge, config: Readonly<Record<string, unknown>> = {}): Promise<HostProcess> {
    const [port = 0] = await freePorts(1);
    const host = new HostProcess(port, {
      node_id: edge.host,
      listen: `127.0.0.1:${port}`,
      servers: [edge.url],
      token: edge.token,
      data: "data",
      restart_base: "100ms",
      drain_timeout: "5s",
      logging: { level: "debug" },
      models: [{ name: "sim", engine: "sim", slots: 4, max_pending: 4 }],
      ...config,
    });
    host.spawn();
    await until("the host listens", () => host.#reachable());
    return host;
  }

  /** Runs another host with this one's configuration and `config` over it, to its end. */
  static async beside(
    host: HostProcess,
    config: Readonly<Record<string, unknown>>,
  ): Promise<{ readonly code: number | null; readonly stderr: string }> {
    const file = path.join(host.folder, "other.yaml");
    writeFileSync(file, JSON.stringify({ ...host.#config, ...config }));
    const child = spawn(process.execPath, [BACKEND, "serve", "--config", file], {
      stdio: ["ignore", "ignore", "pipe"],
    });
    let stderr = "";
    child.stderr.setEncoding("utf8").on("data", (text: string) => (stderr += text));
    const limit = setTimeout(() => child.kill("SIGKILL"), 10_000);
    await once(child, "close");
    clearTimeout(limit);
    return { code: child.exitCode, stderr };
  }

  get url(): string {
    return `http://127.0.0.1:${this.port}`;
  }

  get pid(): number {
    return this.#child?.pid ?? 0;
  }

  spawn(): void {
    const file = path.join(this.folder, "host.yaml");
    writeFileSync(file, JSON.stringify(this.#config));
    const child = spawn(process.execPath, [BACKEND, "serve", "--config", file], { stdio: ["ignore", "pipe", "pipe"] });
    for (const stream of [child.stdout, child.stderr]) {
      stream.setEncoding("utf8").on("data", (text: string) => this.log.push(...text.trimEnd().split("\n")));
    }
    this.#child = child;
  }

  async restart(): Promise<void> {
    this.spawn();
    await until("the host listens again", () => this.#reachable());
  }

  /** Process ids of the engines: the host's children. */
  enginePids(): number[] {
    return readdirSync("/proc").flatMap((name) => {
      if (!/^\d+$/.test(name)) return [];
      try {
        const parent = /^PPid:\s+(\d+)$/m.exec(readFileSync(`/proc/${name}/status`, "utf8"))?.[1];
        return Number(parent) === this.pid ? [Number(name)] : [];
      } catch {
        return [];
      }
    });
  }

  async end(signal: NodeJS.Signals): Promise<{ code: number | null; signal: NodeJS.Signals | null }> {
    const child = this.#child;
    if (child === null) return { code: null, signal: null };
    this.#child = null;
    if (child.exitCode !== null || child.signalCode !== null) return { code: child.exitCode, signal: child.signalCode };
    const exit = once(child, "exit");
    child.kill(signal);
    await exit;
    return { code: child.exitCode, signal: child.signalCode };
  }

  /** Ends the host as an operator would, so that nothing of it stays behind. */
  async stop(): Promise<void> {
    await this.end("SIGTERM");
    rmSync(this.folder, { recursive: true, force: true });
  }

  async request(token: string, body: string, init: HostRequestInit = {}): Promise<Response> {
    return fetch(`${this.url}${init.path ?? "/v1/chat/completions"}`, {
      method: "POST",
      body,
      headers: { "content-type": "application/json", authorization: `Bearer ${token}`, ...init.headers },
      signal: init.signal ?? null,
    });
  }

  async #reachable(): Promise<boolean> {
    return (await fetch(`${this.url}/health`).catch(() => null)) !== null;
  }
}

/** Asks again every 20 ms; fails with what was waited for. */
export async function until(what: string, holds: () => Promise<boolean> | boolean, limitMs = 20_000): Promise<void> {
  const end = Date.now() + limitMs;
  while (Date.now() < end) {
    if (await holds()) return;
    await new Promise((resolve) => setTimeout(resolve, 20));
  }
  throw new Error(`waited ${limitMs} ms in vain until ${what}`);
}

/** Whether a process runs; one that has ended and only waits to be collected does not. */
export function isAlive(pid: number): boolean {
  try {
    return !/^State:\s+Z/m.test(readFileSync(`/proc/${pid}/status`, "utf8"));
  } catch {
    return false;
  }
}
