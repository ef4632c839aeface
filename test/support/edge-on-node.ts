import { NO_SCOPE_LIMITS, type ScopeLimits } from "../../edge/ports/limits.ts";
import { randomBytes } from "node:crypto";
import { mkdtempSync, rmSync } from "node:fs";
import { connect } from "node:net";
import { tmpdir } from "node:os";
import path from "node:path";
import { sha256 } from "../../edge/accounts/sha256.ts";
import { newApiKey, newHostToken } from "../../edge/accounts/api-key.ts";
import { edgeConfigSchema, type EdgeConfigInput } from "../../edge/config.ts";
import { nodeClock } from "../../edge/node/clock.node.ts";
import { openCommandStore, type ClosableStore } from "../../edge/node/database.ts";
import type { LoadedConfig } from "../../edge/node/load-config.ts";
import { startEdge, type RunningEdge } from "../../edge/node/start-edge.ts";
import type { NewKey } from "../../edge/ports/key-store.ts";
import type { UsageRow } from "../../edge/ports/usage-store.ts";
import { readConfig } from "../../shared/config/read-config.ts";
import { createLogger } from "../../shared/logging/logger.ts";
import { until } from "./stack.ts";

const quiet = createLogger({ level: "error", format: "console", clock: nodeClock, write: () => undefined });

interface PostOptions {
  readonly headers?: Readonly<Record<string, string>>;
  readonly signal?: AbortSignal;
}

const openLeases = (kind: string): string => `steerage_leases_open{kind="${kind}"}`;

/** A whole edge of this process in a folder of its own, with one key. */
export class EdgeOnNode {
  readonly folder = mkdtempSync(path.join(tmpdir(), "steerage-edge-"));
  readonly loaded: LoadedConfig;
  key = "";
  #edge: RunningEdge | null = null;
  /** As a command beside the edge has it; kept, since opening it takes longer than most questions. */
  #store: Promise<ClosableStore> | null = null;

  private constructor(config: EdgeConfigInput) {
    const free = "127.0.0.1:0";
    this.loaded = {
      config: readConfig(
        edgeConfigSchema,
        { listen: free, admin_listen: free, metrics_listen: free, logging: { level: "error" }, ...config },
        "test",
      ),
      dataDirectory: this.folder,
      databaseUrl: `file:${path.join(this.folder, "steerage.db")}`,
      databaseAuthToken: undefined,
    };
  }

  static async start(config: EdgeConfigInput): Promise<EdgeOnNode> {
    const edge = new EdgeOnNode(config);
    edge.key = await edge.newKey();
    edge.#edge = await startEdge(edge.loaded);
    return edge;
  }

  get urls(): RunningEdge {
    if (this.#edge === null) throw new Error("the edge does not run");
    return this.#edge;
  }

  get origin(): string {
    return this.urls.baseUrl.replace(/\/v1$/, "");
  }

  async newKey(more: Partial<NewKey> = {}): Promise<string> {
    const { publicId, secret, text } = newApiKey(randomBytes);
    await this.#withStore(async (store) =>
      store.createKey({
        keyId: publicId,
        secretSha256: await sha256(secret),
        project: "test",
        account: null,
        limits: NO_SCOPE_LIMITS,
        band: null,
        createdAtMs: Date.now(),
        ...more,
      }),
    );
    return text;
  }

  /** The token of a host that may report. */
  async enrolHost(name: string): Promise<string> {
    const token = newHostToken(randomBytes);
    await this.#withStore(async (store) => store.enrollHost(name, await sha256(token), Date.now()));
    return token;
  }

  async setLimits(key: string, limits: Partial<ScopeLimits>): Promise<void> {
    await this.#withStore((store) => store.updateKey(key.split("-")[2] ?? "", { limits }));
  }

  async revoke(key: string): Promise<void> {
    await this.#withStore((store) => store.revokeKey(key.split("-")[2] ?? "", Date.now()));
  }

  rows(): Promise<readonly UsageRow[]> {
    return this.#withStore((store) => store.usagePage({ fromMs: null, toMs: null, after: null, limit: 1_000 }));
  }

  /** The row of an answer, as soon as it is stored. */
  async rowOf(answer: Response): Promise<UsageRow> {
    const requestId = answer.headers.get("x-request-id");
    let found: UsageRow | undefined;
    await until(`the row of ${requestId} is stored`, async () => {
      found = (await this.rows()).find((row) => row.requestId === requestId);
      return found !== undefined;
    });
    if (found === undefined) throw new Error("a row that was found is there");
    return found;
  }

  /** A line of the metrics page, such as `name{label="x"}`; null when it is not there. */
  async metric(line: string): Promise<number | null> {
    const text = await (await fetch(this.urls.metricsUrl ?? "")).text();
    const found = text.split("\n").find((one) => one.startsWith(`${line} `));
    return found === undefined ? null : Number(found.slice(line.length + 1));
  }

  /** Until no request runs or waits and no claim and no reservation is held. */
  async idle(): Promise<void> {
    const lines = ["steerage_requests_in_flight", ...["claim", "reservation"].map(openLeases)];
    await until("nothing is held any more", async () => {
      const values = await Promise.all(lines.map((line) => this.metric(line)));
      return values.every((value) => value === 0);
    });
  }

  post(route: string, body: unknown, init: PostOptions = {}): Promise<Response> {
    return fetch(this.urls.baseUrl + route, {
      method: "POST",
      body: typeof body === "string" ? body : JSON.stringify(body),
      ...init,
      headers: { "content-type": "application/json", authorization: `Bearer ${this.key}`, ...init.headers },
    });
  }

  /** Sends bytes as they are to the public listener and answers all that comes back until the connection ends. */
  raw(text: string | Uint8Array, options: { readonly thenEnd?: boolean } = {}): Promise<string> {
    const { hostname, port } = new URL(this.origin);
    return new Promise((resolve, reject) => {
      let answer = "";
      const socket = connect(Number(port), hostname, () => {
        socket.write(text);
        if (options.thenEnd === true) socket.end();
      });
      socket.setEncoding("utf8").on("data", (part: string) => (answer += part));
      socket.once("close", () => resolve(answer));
      socket.once("error", (error: NodeJS.ErrnoException) => {
        // The server may close while we still write.
        if (error.code !== "ECONNRESET" && error.code !== "EPIPE") reject(error);
      });
    });
  }

  async stop(): Promise<void> {
    await this.#edge?.close();
    this.#edge = null;
  }

  /** On other ports, where those were free ones. */
  async restart(): Promise<void> {
    await this.stop();
    this.#edge = await startEdge(this.loaded);
  }

  async remove(): Promise<void> {
    this.#edge?.abort();
    await this.stop();
    await (await this.#store)?.close();
    rmSync(this.folder, { recursive: true, force: true });
  }

  async #withStore<Result>(use: (store: ClosableStore) => Promise<Result>): Promise<Result> {
    this.#store ??= openCommandStore({ databaseUrl: this.loaded.databaseUrl, clock: nodeClock, logger: quiet });
    return use(await this.#store);
  }
}
