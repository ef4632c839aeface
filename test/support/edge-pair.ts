import { execFile, spawn, type ChildProcess } from "node:child_process";
import { once } from "node:events";
import { createHash, generateKeyPairSync } from "node:crypto";
import { mkdirSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import path from "node:path";
import { promisify } from "node:util";
import { createClient, type InValue } from "@libsql/client";
import { z } from "zod";
import { HranaServer } from "./hrana-server.ts";
import { REPOSITORY } from "./source-tree.ts";
import { freePorts, until } from "./stack.ts";

const EDGE = path.join(REPOSITORY, "dist/edge/node/main.js");
const BACKEND = path.join(REPOSITORY, "dist/backend/main.js");
const TOKEN = "database-token";

export type EdgeName = "a" | "b";

const createdSchema = z.object({ key: z.string(), id: z.string() });
const keysSchema = z.object({ keys: z.array(z.looseObject({})) });
const enrolledSchema = z.object({ token: z.string() });

export interface EdgePairOptions {
  /** An embedded file both open, or a libSQL server that both reach over HTTP. */
  readonly database: "file" | "server";
  /** Merged over both edges' files. */
  readonly edge?: Readonly<Record<string, unknown>>;
  /** The script of the engine. */
  readonly sim?: Readonly<Record<string, string | number | boolean>>;
  readonly slots?: number;
}

interface EdgePorts {
  readonly api: number;
  readonly admin: number;
}

/** Two edges on one database, each a process with a data directory of its own, and a host that reports to both. */
export class EdgePair {
  readonly folder = mkdtempSync(path.join(tmpdir(), "steerage-pair-"));
  readonly log: string[] = [];
  readonly #ports: Readonly<Record<EdgeName, EdgePorts>>;
  readonly #hostPort: number;
  readonly #options: EdgePairOptions;
  readonly #children = new Map<EdgeName | "host", ChildProcess>();
  #server: HranaServer | null = null;
  #hostToken = "";
  key = "";

  private constructor([a = 0, b = 0, c = 0, d = 0, host = 0]: number[], options: EdgePairOptions) {
    this.#ports = { a: { api: a, admin: b }, b: { api: c, admin: d } };
    this.#hostPort = host;
    this.#options = options;
  }

  static async start(options: EdgePairOptions): Promise<EdgePair> {
    const pair = new EdgePair(await freePorts(5), options);
    try {
      await pair.#prepare();
      pair.startEdge("a");
      await pair.untilServing("a");
      pair.startEdge("b");
      await pair.untilServing("b");
      return pair;
    } catch (error) {
      await pair.stop();
      throw error;
    }
  }

  startEdge(name: EdgeName): void {
    this.#spawn(name, EDGE, ["serve", "--config", this.#config(name)]);
  }

  pidOf(name: EdgeName | "host"): number {
    return this.#children.get(name)?.pid ?? 0;
  }

  request(name: EdgeName, route: string, body?: unknown, init: RequestInit = {}): Promise<Response> {
    return fetch(`http://127.0.0.1:${this.#ports[name].api}/v1${route}`, {
      method: body === undefined ? "GET" : "POST",
      ...(body === undefined ? {} : { body: JSON.stringify(body) }),
      ...init,
      headers: {
        "content-type": "application/json",
        authorization: `Bearer ${this.key}`,
        ...Object.fromEntries(new Headers(init.headers)),
      },
    });
  }

  async metric(name: EdgeName, pattern: RegExp): Promise<string[]> {
    const text = await fetch(`http://127.0.0.1:${this.#ports[name].admin}/metrics`).then((response) => response.text());
    return text.split("\n").filter((line) => pattern.test(line));
  }

  /** Waits for a condition; a failure shows what the processes said last. */
  async until(what: string, holds: () => Promise<boolean> | boolean): Promise<void> {
    await until(what, holds).catch((error: unknown) => {
      throw new Error(`${String(error)}\n${this.log.slice(-40).join("\n")}`);
    });
  }

  /** Until this edge answers and knows a replica that is ready. */
  async untilServing(name: EdgeName): Promise<void> {
    await this.until(`edge ${name} serves`, async () => {
      const lines = await this.metric(name, /^steerage_replicas\{.*state="ready".*\} [1-9]/).catch(() => []);
      return lines.length > 0;
    });
  }

  /** Runs a command of the edge on this edge's configuration; rejects when it exits with anything but 0. */
  async cli(name: EdgeName, ...args: string[]): Promise<string> {
    const { stdout } = await promisify(execFile)(process.execPath, [EDGE, ...args, "--config", this.#config(name)], {
      maxBuffer: 64 * 2 ** 20,
      env: this.#environment(),
    });
    return stdout;
  }

  async newKey(...limits: string[]): Promise<{ key: string; id: string }> {
    const text = await this.cli("a", "keys", "create", "--project", "test", ...limits, "--json");
    return createdSchema.parse(JSON.parse(text));
  }

  /** Reads the database beside the edges. */
  async rows(sql: string, args: InValue[] = []): Promise<Record<string, unknown>[]> {
    const client = createClient({ url: `file:${path.join(this.folder, "shared.db")}`, timeout: 5_000 });
    try {
      const { rows } = await client.execute({ sql, args });
      return rows.map((row) => ({ ...row }));
    } finally {
      client.close();
    }
  }

  /** Puts a new signing key before the one that an edge has, as an operator does. */
  rotateSigningKey(name: EdgeName): void {
    const file = path.join(this.folder, name, "keys/edge-signing.json");
    const { keys } = keysSchema.parse(JSON.parse(readFileSync(file, "utf8")));
    const jwk = generateKeyPairSync("ed25519").privateKey.export({ format: "jwk" });
    const kid = createHash("sha256")
      .update(JSON.stringify({ crv: jwk.crv, kty: jwk.kty, x: jwk.x }))
      .digest("base64url");
    writeFileSync(file, JSON.stringify({ keys: [{ ...jwk, kid }, ...keys] }), { mode: 0o600 });
  }

  /** Starts a third edge under the name of one that runs, with a data directory of its own, and waits for its end. */
  async startAs(name: EdgeName): Promise<{ readonly code: number | null; readonly stderr: string }> {
    const file = path.join(this.folder, "third.yaml");
    const free = { listen: "127.0.0.1:0", admin_listen: "127.0.0.1:0", data: path.join(this.folder, "third") };
    const document: unknown = JSON.parse(readFileSync(this.#config(name), "utf8"));
    this.#write("third.yaml", { ...Object(document), ...free });
    const child = spawn(process.execPath, [EDGE, "serve", "--config", file], {
      stdio: ["ignore", "ignore", "pipe"],
      env: this.#environment(),
    });
    let stderr = "";
    child.stderr.setEncoding("utf8").on("data", (text: string) => (stderr += text));
    const limit = setTimeout(() => child.kill("SIGKILL"), 20_000);
    await once(child, "close");
    clearTimeout(limit);
    return { code: child.exitCode, stderr };
  }

  async end(name: EdgeName | "host", signal: NodeJS.Signals): Promise<void> {
    const child = this.#children.get(name);
    if (child === undefined || child.exitCode !== null || child.signalCode !== null) return;
    const gone = once(child, "exit");
    child.kill(signal);
    await gone;
  }

  async stop(): Promise<void> {
    await Promise.all([this.end("a", "SIGKILL"), this.end("b", "SIGKILL"), this.end("host", "SIGTERM")]);
    await this.#server?.stop();
    rmSync(this.folder, { recursive: true, force: true });
  }

  async #prepare(): Promise<void> {
    const file = path.join(this.folder, "shared.db");
    if (this.#options.database === "server") this.#server = await HranaServer.start({ file, token: TOKEN });
    for (const name of ["a", "b"] as const) {
      const { api, admin } = this.#ports[name];
      mkdirSync(path.join(this.folder, name));
      this.#write(`${name}.yaml`, {
        name,
        listen: `127.0.0.1:${api}`,
        admin_listen: `127.0.0.1:${admin}`,
        data: path.join(this.folder, name),
        ...this.#options.edge,
        auth: { store: this.#server?.url ?? file, ...Object(this.#options.edge?.["auth"]) },
      });
    }
    await this.cli("a", "migrate");
    this.key = (await this.newKey("--rpm", "100000", "--tpm", "100000000")).key;
    this.#hostToken = enrolledSchema.parse(JSON.parse(await this.cli("a", "hosts", "enroll", "gpu", "--json"))).token;
    this.#write("host.yaml", {
      node_id: "gpu",
      listen: `127.0.0.1:${this.#hostPort}`,
      servers: [`http://127.0.0.1:${this.#ports.a.admin}`, `http://127.0.0.1:${this.#ports.b.admin}`],
      token: this.#hostToken,
      reconnect_max: "1s",
      data: path.join(this.folder, "host"),
      models: [{ name: "sim", engine: "sim", slots: this.#options.slots ?? 8, sim: this.#options.sim ?? {} }],
    });
    this.#spawn("host", BACKEND, ["serve", "--config", path.join(this.folder, "host.yaml")]);
  }

  #config(name: EdgeName): string {
    return path.join(this.folder, `${name}.yaml`);
  }

  #write(name: string, document: unknown): void {
    writeFileSync(path.join(this.folder, name), JSON.stringify(document), { mode: 0o600 });
  }

  #environment(): NodeJS.ProcessEnv {
    return { ...process.env, ...(this.#server === null ? {} : { LIBSQL_AUTH_TOKEN: TOKEN }) };
  }

  #spawn(name: EdgeName | "host", program: string, args: string[]): void {
    const child = spawn(process.execPath, [program, ...args], {
      stdio: ["ignore", "pipe", "pipe"],
      env: this.#environment(),
    });
    for (const stream of [child.stdout, child.stderr]) {
      stream.setEncoding("utf8").on("data", (text: string) => this.log.push(`${name}: ${text.trimEnd()}`));
    }
    this.#children.set(name, child);
  }
}
