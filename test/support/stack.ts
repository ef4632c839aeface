import { execFile, spawn, type ChildProcess } from "node:child_process";
import { randomInt } from "node:crypto";
import { mkdtempSync, readdirSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { createServer } from "node:net";
import { tmpdir } from "node:os";
import path from "node:path";
import { promisify } from "node:util";
import { REPOSITORY } from "./source-tree.ts";

export const DEMO_MODEL = "demo-storyteller-1m";
const EDGE = path.join(REPOSITORY, "dist/edge/node/main.js");
const BACKEND = path.join(REPOSITORY, "dist/backend/main.js");

export interface StackOptions {
  /** Merged over the edge's configuration file. */
  readonly edge?: Readonly<Record<string, unknown>>;
  /** Merged over the host's configuration file; `null` starts no host. */
  readonly host?: Readonly<Record<string, unknown>> | null;
}

/** The whole product as operators run it: an edge process, a host process, the native engine, in a folder of its own. */
export class Stack {
  readonly folder = mkdtempSync(path.join(tmpdir(), "steerage-test-"));
  readonly #ports: { api: number; admin: number; metrics: number; host: number };
  readonly #options: StackOptions;
  readonly #children = new Map<"edge" | "host", ChildProcess>();
  readonly log: string[] = [];
  key = "";

  private constructor(ports: number[], options: StackOptions) {
    const [api = 0, admin = 0, metrics = 0, host = 0] = ports;
    this.#ports = { api, admin, metrics, host };
    this.#options = options;
  }

  static async start(options: StackOptions = {}): Promise<Stack> {
    const stack = new Stack(await freePorts(4), options);
    try {
      stack.#writeConfigs();
      await stack.cli("migrate");
      const limits = ["--rpm", "100000", "--tpm", "100000000"];
      stack.key = memberOf(await stack.cli("keys", "create", "--project", "test", ...limits, "--json"), "key");
      if (options.host !== null) {
        const token = memberOf(await stack.cli("hosts", "enroll", "local", "--json"), "token");
        writeFileSync(path.join(stack.folder, "host-token"), token, { mode: 0o600 });
      }
      stack.startEdge();
      if (options.host !== null) stack.startHost();
      await stack.untilReady();
      return stack;
    } catch (error) {
      await stack.stop();
      throw error;
    }
  }

  get baseUrl(): string {
    return `http://127.0.0.1:${this.#ports.api}/v1`;
  }

  get hostUrl(): string {
    return `http://127.0.0.1:${this.#ports.host}`;
  }

  get metricsUrl(): string {
    return `http://127.0.0.1:${this.#ports.metrics}/metrics`;
  }

  get adminUrl(): string {
    return `http://127.0.0.1:${this.#ports.admin}`;
  }

  startEdge(): void {
    this.#spawn("edge", EDGE, ["serve", "--config", path.join(this.folder, "edge.yaml")]);
  }

  startHost(): void {
    const token = readFileSync(path.join(this.folder, "host-token"), "utf8").trim();
    this.#spawn("host", BACKEND, ["serve", "--config", path.join(this.folder, "host.yaml")], {
      STEERAGE_HOST_TOKEN: token,
    });
  }

  pidOf(name: "edge" | "host"): number {
    return this.#children.get(name)?.pid ?? 0;
  }

  /** Processes that the host started: its engines. */
  enginePids(): number[] {
    const host = String(this.pidOf("host"));
    return readdirSync("/proc")
      .filter((name) => /^\d+$/.test(name))
      .filter((pid) => {
        try {
          return (
            readFileSync(`/proc/${pid}/stat`, "utf8")
              .replace(/^.*\) /, "")
              .split(" ")[1] === host
          );
        } catch {
          return false;
        }
      })
      .map(Number);
  }

  /** Ends a program and waits until it is gone; answers its exit code, or the signal's name. */
  async end(name: "edge" | "host", signal: NodeJS.Signals): Promise<number | string | null> {
    const child = this.#children.get(name);
    if (child === undefined) return null;
    const gone = new Promise<number | string | null>((resolve) => {
      child.once("exit", (code, by) => resolve(code ?? by));
    });
    child.kill(signal);
    return gone;
  }

  /** Runs a `steerage` command on this stack's configuration; rejects when it exits with anything but 0. */
  async cli(...args: string[]): Promise<string> {
    const run = promisify(execFile);
    const { stdout } = await run(process.execPath, [EDGE, ...args, "--config", path.join(this.folder, "edge.yaml")], {
      maxBuffer: 64 * 2 ** 20,
    });
    return stdout;
  }

  request(route: string, body?: unknown, init: RequestInit = {}): Promise<Response> {
    return fetch(this.baseUrl + route, {
      method: body === undefined ? "GET" : "POST",
      ...(body === undefined ? {} : { body: typeof body === "string" ? body : JSON.stringify(body) }),
      ...init,
      headers: {
        "content-type": "application/json",
        authorization: `Bearer ${this.key}`,
        ...Object.fromEntries(new Headers(init.headers)),
      },
    });
  }

  async metric(pattern: RegExp): Promise<string[]> {
    const text = await fetch(this.metricsUrl).then((response) => response.text());
    return text.split("\n").filter((line) => pattern.test(line));
  }

  /** Until the edge answers and, where there is a host, knows a ready replica. */
  async untilReady(): Promise<void> {
    const what = (): string => `the stack is ready\n${this.log.slice(-30).join("\n")}`;
    await until(what, async () => {
      const list = await this.request("/models").catch(() => null);
      if (list === null || !list.ok) return false;
      if (this.#options.host === null) return true;
      return (await this.metric(/^steerage_replicas\{.*state="ready".*\} [1-9]/)).length > 0;
    });
  }

  async stop(): Promise<void> {
    const endings = [this.end("edge", "SIGKILL"), this.end("host", "SIGTERM")];
    await Promise.all(endings.map((ending) => withinMs(ending, 10_000)));
    await this.end("host", "SIGKILL");
    rmSync(this.folder, { recursive: true, force: true });
  }

  #writeConfigs(): void {
    const demo = path.join(REPOSITORY, "backend/demo");
    const write = (name: string, document: unknown) =>
      writeFileSync(path.join(this.folder, name), JSON.stringify(document));
    write("edge.yaml", {
      name: "test-edge",
      listen: `127.0.0.1:${this.#ports.api}`,
      admin_listen: `127.0.0.1:${this.#ports.admin}`,
      metrics_listen: `127.0.0.1:${this.#ports.metrics}`,
      data: path.join(this.folder, "data"),
      ...this.#options.edge,
    });
    write("host.yaml", {
      node_id: "local",
      listen: `127.0.0.1:${this.#ports.host}`,
      url: `http://127.0.0.1:${this.#ports.host}`,
      servers: [`http://127.0.0.1:${this.#ports.admin}`],
      data: path.join(this.folder, "host"),
      models: [
        {
          name: DEMO_MODEL,
          source: path.join(demo, `${DEMO_MODEL}.q8_0.gguf`),
          saes: [{ id: "demo-l1", source: path.join(demo, "demo-l1") }],
        },
      ],
      ...this.#options.host,
    });
  }

  #spawn(name: "edge" | "host", program: string, args: string[], environment: Record<string, string> = {}): void {
    const child = spawn(process.execPath, [program, ...args], {
      stdio: ["ignore", "pipe", "pipe"],
      env: { ...process.env, ...environment },
    });
    for (const stream of [child.stdout, child.stderr]) {
      stream?.setEncoding("utf8").on("data", (text: string) => this.log.push(`${name}: ${text.trimEnd()}`));
    }
    child.once("exit", () => {
      if (this.#children.get(name) === child) this.#children.delete(name);
    });
    this.#children.set(name, child);
  }
}

/** Asks again every 50 ms; fails with what was waited for, as it is said then. */
export async function until(
  what: string | (() => string),
  holds: () => Promise<boolean> | boolean,
  limitMs = 60_000,
): Promise<void> {
  const end = Date.now() + limitMs;
  while (Date.now() < end) {
    if (await holds()) return;
    await new Promise((resolve) => setTimeout(resolve, 50));
  }
  throw new Error(`waited ${limitMs} ms in vain until ${typeof what === "string" ? what : what()}`);
}

function withinMs<T>(promise: Promise<T>, ms: number): Promise<T | null> {
  return Promise.race([promise, new Promise<null>((resolve) => setTimeout(() => resolve(null), ms).unref())]);
}

/** Below the range from which the kernel takes the ports of connections, which could take one away before it is used. */
const PORTS = { from: 10_000, count: 20_000 };

/** Ports on which nothing listens, for programs that are about to. */
export async function freePorts(count: number): Promise<number[]> {
  const held = await Promise.all(Array.from({ length: count }, holdPort));
  const ports = held.map(({ port }) => port);
  await Promise.all(held.map(({ release }) => release()));
  return ports;
}

async function holdPort(): Promise<{ readonly port: number; readonly release: () => Promise<unknown> }> {
  for (;;) {
    const port = PORTS.from + randomInt(PORTS.count);
    const server = createServer();
    const isFree = await new Promise<boolean>((resolve) => {
      server.once("error", () => resolve(false));
      server.listen(port, "127.0.0.1", () => resolve(true));
    });
    if (isFree) return { port, release: () => new Promise((resolve) => server.close(resolve)) };
  }
}

function memberOf(json: string, name: string): string {
  const document: unknown = JSON.parse(json);
  const value: unknown = typeof document === "object" && document !== null ? Reflect.get(document, name) : undefined;
  if (typeof value !== "string") throw new Error(`no '${name}' in ${json}`);
  return value;
}
