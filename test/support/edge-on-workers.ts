import { NO_SCOPE_LIMITS, type ScopeLimits } from "../../edge/ports/limits.ts";
import { execFile } from "node:child_process";
import { randomBytes } from "node:crypto";
import { mkdtempSync, readFileSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import path from "node:path";
import { promisify } from "node:util";
import { Miniflare } from "miniflare";
import { unstable_getMiniflareWorkerOptions } from "wrangler";
import { newApiKey, newHostToken } from "../../edge/accounts/api-key.ts";
import { sha256 } from "../../edge/accounts/sha256.ts";
import type { EdgeConfigInput } from "../../edge/config.ts";
import { nodeClock } from "../../edge/node/clock.node.ts";
import { openCommandStore, type ClosableStore } from "../../edge/node/database.ts";
import type { UsageRow } from "../../edge/ports/usage-store.ts";
import { newSigningKey } from "../../edge/web/signer.jose.ts";
import { createLogger } from "../../shared/logging/logger.ts";
import { HranaServer } from "./hrana-server.ts";
import { REPOSITORY } from "./source-tree.ts";

const quiet = createLogger({ level: "error", format: "console", clock: nodeClock, write: () => undefined });
const LIBSQL_TOKEN = "libsql-token-of-this-test";

let bundle: Promise<string> | null = null;

/** The Worker's script, bundled as a deployment would, once for all tests of a file. */
function bundledWorker(): Promise<string> {
  bundle ??= makeBundle();
  return bundle;
}

async function makeBundle(): Promise<string> {
  const folder = mkdtempSync(path.join(tmpdir(), "steerage-bundle-"));
  const wrangler = path.join(REPOSITORY, "node_modules/wrangler/bin/wrangler.js");
  await promisify(execFile)(process.execPath, [wrangler, "deploy", "--dry-run", "--outdir", folder], {
    cwd: REPOSITORY,
    env: { ...process.env, WRANGLER_SEND_METRICS: "false", CI: "true" },
  });
  const script = readFileSync(path.join(folder, "worker.js"), "utf8");
  rmSync(folder, { recursive: true, force: true });
  return script;
}

/** The edge inside workerd, with a libSQL server over HTTP that keeps its database in a file. */
export class EdgeOnWorkers {
  readonly #folder: string;
  #database: HranaServer;
  readonly #workerd: Miniflare;
  readonly key: string;
  readonly hostToken: string;

  private constructor(parts: {
    folder: string;
    database: HranaServer;
    workerd: Miniflare;
    key: string;
    hostToken: string;
  }) {
    this.#folder = parts.folder;
    this.#database = parts.database;
    this.#workerd = parts.workerd;
    this.key = parts.key;
    this.hostToken = parts.hostToken;
  }

  static async start(
    config: EdgeConfigInput,
    limits: Partial<ScopeLimits> = {},
    before: (store: ClosableStore, keyId: string) => Promise<void> = async () => undefined,
  ): Promise<EdgeOnWorkers> {
    const folder = mkdtempSync(path.join(tmpdir(), "steerage-workers-"));
    const file = path.join(folder, "steerage.db");
    const key = newApiKey(randomBytes);
    const hostToken = newHostToken(randomBytes);
    await withStore(file, async (store) => {
      await store.createKey({
        keyId: key.publicId,
        secretSha256: await sha256(key.secret),
        project: "test",
        account: null,
        limits: { ...NO_SCOPE_LIMITS, ...limits },
        band: null,
        createdAtMs: Date.now(),
      });
      await before(store, key.publicId);
      await store.enrollHost("gpu-1", await sha256(hostToken), Date.now());
    });
    const database = await HranaServer.start({ file, token: LIBSQL_TOKEN });
    const script = await bundledWorker();
    const { workerOptions } = unstable_getMiniflareWorkerOptions(path.join(REPOSITORY, "wrangler.toml"));
    const workerd = new Miniflare({
      ...workerOptions,
      name: "steerage-edge",
      modules: [{ type: "ESModule", path: "worker.js", contents: script }],
      bindings: {
        EDGE_CONFIG: JSON.stringify(config),
        LIBSQL_URL: database.url,
        LIBSQL_AUTH_TOKEN: LIBSQL_TOKEN,
        EDGE_SIGNING_KEYS: JSON.stringify({ keys: [await newSigningKey()] }),
      },
    });
    await workerd.ready;
    return new EdgeOnWorkers({ folder, database, workerd, key: key.text, hostToken });
  }

  async origin(): Promise<string> {
    return (await this.#workerd.ready).origin;
  }

  async request(
    route: string,
    init: { method?: string; body?: unknown; key?: string; headers?: Record<string, string> } = {},
  ): Promise<Response> {
    const { method = init.body === undefined ? "GET" : "POST", body, key = this.key } = init;
    return fetch(`${await this.origin()}${route}`, {
      method,
      headers: { "content-type": "application/json", authorization: `Bearer ${key}`, ...init.headers },
      ...(body === undefined ? {} : { body: JSON.stringify(body) }),
    });
  }

  rows(): Promise<readonly UsageRow[]> {
    return withStore(path.join(this.#folder, "steerage.db"), (store) =>
      store.usagePage({ fromMs: null, toMs: null, after: null, limit: 1_000 }),
    );
  }

  async revoke(key: string): Promise<void> {
    await withStore(path.join(this.#folder, "steerage.db"), (store) =>
      store.revokeKey(key.split("-")[2] ?? "", Date.now()),
    );
  }

  async stopDatabase(): Promise<void> {
    await this.#database.stop();
  }

  /** At the same address as before. */
  async startDatabase(): Promise<void> {
    const port = Number(new URL(this.#database.url).port);
    this.#database = await HranaServer.start({
      file: path.join(this.#folder, "steerage.db"),
      token: LIBSQL_TOKEN,
      port,
    });
  }

  async stop(): Promise<void> {
    await this.#workerd.dispose();
    await this.#database.stop();
    rmSync(this.#folder, { recursive: true, force: true });
  }
}

async function withStore<Result>(file: string, use: (store: ClosableStore) => Promise<Result>): Promise<Result> {
  const store = await openCommandStore({ databaseUrl: `file:${file}`, clock: nodeClock, logger: quiet });
  try {
    return await use(store);
  } finally {
    await store.close();
  }
}
