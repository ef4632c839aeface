import { createHash, randomBytes } from "node:crypto";
import { createServer, request as httpRequest, type Server } from "node:http";
import path from "node:path";
import { createClient, type Client } from "@libsql/client";
import { afterEach, beforeEach, describe, expect, it } from "vitest";
import { z } from "zod";
import { newApiKey } from "../../edge/accounts/api-key.ts";
import { edgeConfigSchema } from "../../edge/config.ts";
import { nodeClock } from "../../edge/node/clock.node.ts";
import { openCommandStore, type ClosableStore } from "../../edge/node/database.ts";
import { startEdge, type RunningEdge } from "../../edge/node/start-edge.ts";
import { NO_SCOPE_LIMITS } from "../../edge/ports/limits.ts";
import { readConfig } from "../../shared/config/read-config.ts";
import { silentLogger } from "../support/dispatch-fakes.ts";
import { errorBodyOf } from "../support/error-body.ts";
import { HranaServer } from "../support/hrana-server.ts";
import { ScriptedEndpoint } from "../support/scripted-endpoint.ts";
import { until } from "../support/stack.ts";
import { temporaryFolder } from "../support/temporary-folder.ts";

const question = { model: "m", messages: [{ role: "user", content: "Count." }] };
const LIMIT = 6;
const readySchema = z.object({ status: z.string(), store: z.string() });

/** What stands between the edge and its database server, and can be taken away. */
class Cable {
  readonly #server: Server;
  state: "whole" | "cut" | "silent" = "whole";

  constructor(target: URL) {
    this.#server = createServer((incoming, outgoing) => {
      if (this.state === "silent") return;
      if (this.state === "cut") {
        outgoing.destroy();
        return;
      }
      const { url, method, headers } = incoming;
      const passed = httpRequest(new URL(url ?? "/", target), { method, headers }, (answer) => {
        outgoing.writeHead(answer.statusCode ?? 500, answer.headers);
        answer.pipe(outgoing);
      });
      passed.on("error", () => outgoing.destroy());
      incoming.pipe(passed);
    });
  }

  async open(): Promise<string> {
    await new Promise<void>((resolve) => this.#server.listen(0, "127.0.0.1", resolve));
    const address = this.#server.address();
    if (address === null || typeof address === "string") throw new Error("a TCP server has an address");
    return `http://127.0.0.1:${address.port}`;
  }

  change(state: Cable["state"]): void {
    this.state = state;
    this.#server.closeAllConnections();
  }

  close(): Promise<void> {
    this.#server.closeAllConnections();
    return new Promise((resolve) => this.#server.close(() => resolve()));
  }
}

describe("an edge whose database is away", () => {
  const temporary = temporaryFolder();
  const file = path.join(temporary.folder, "a.db");
  let endpoint: ScriptedEndpoint;
  let database: HranaServer;
  let cable: Cable;
  let store: ClosableStore;
  let edge: RunningEdge;
  let lock: Client | null = null;
  const keys: string[] = [];

  async function start(databaseUrl: string): Promise<void> {
    store = await openCommandStore({ databaseUrl: `file:${file}`, clock: nodeClock, logger: silentLogger });
    for (let made = 0; made < 2; made += 1) {
      const { publicId, secret, text } = newApiKey(randomBytes);
      keys.push(text);
      await store.createKey({
        keyId: publicId,
        secretSha256: createHash("sha256").update(secret).digest("hex"),
        project: "p",
        account: null,
        limits: { ...NO_SCOPE_LIMITS, requestsPerMinute: LIMIT, budgetDayNanoUsd: "1000000000" },
        band: null,
        createdAtMs: 1,
      });
    }
    const free = "127.0.0.1:0";
    const config = readConfig(
      edgeConfigSchema,
      {
        listen: free,
        admin_listen: free,
        logging: { level: "error" },
        endpoints: [{ id: "other", url: endpoint.url, models: ["m"] }],
        // Each call asks the store about its key anew, so that what is cached is what is left of it.
        auth: { cache_ttl: "1ms", flush_interval: "50ms", default_price: { completion_per_1k: 7 } },
      },
      "test",
    );
    edge = await startEdge({
      config,
      dataDirectory: path.join(temporary.folder, "data"),
      databaseUrl,
      databaseAuthToken: "t",
    });
  }

  beforeEach(async () => {
    endpoint = await ScriptedEndpoint.start();
    database = await HranaServer.start({ file, token: "t" });
    cable = new Cable(new URL(database.url.replace(/^libsql:/, "http:")));
  });
  afterEach(async () => {
    lock?.close();
    lock = null;
    cable.change("whole");
    edge.abort();
    await edge.close();
    await store.close();
    await cable.close();
    await database.stop();
    await endpoint.stop();
    keys.length = 0;
    temporary.remove();
  });

  const ask = (key: string | undefined, headers: Record<string, string> = {}): Promise<Response> =>
    fetch(`${edge.baseUrl}/chat/completions`, {
      method: "POST",
      headers: { "content-type": "application/json", authorization: `Bearer ${key}`, ...headers },
      body: JSON.stringify(question),
    });
  const ready = async (): Promise<readonly [number, string, string]> => {
    const answer = await fetch(`${edge.baseUrl.replace(/\/v1$/, "")}/ready`);
    const { status, store: state } = readySchema.parse(await answer.json());
    return [answer.status, status, state];
  };
  const readyIs = (status: string, state: string): Promise<void> =>
    until(`the edge is ${status}`, async () => JSON.stringify(await ready()) === JSON.stringify([200, status, state]));
  const rows = async (): Promise<number> =>
    (await store.usagePage({ fromMs: null, toMs: null, after: null, limit: 100 })).length;

  /** Known keys go on under their limits, unknown ones are not called wrong, and the edge stays in rotation. */
  async function holdsOn(): Promise<void> {
    const [known, unknown] = keys;
    for (let call = 1; call < LIMIT; call += 1) {
      const answer = await ask(known);
      expect([answer.status, answer.headers.get("x-ratelimit-remaining-requests")]).toEqual([
        200,
        String(LIMIT - 1 - call),
      ]);
      await answer.text();
    }
    const over = await ask(known);
    expect([over.status, (await errorBodyOf(over)).code]).toEqual([429, "rate_limit_exceeded"]);
    const stranger = await ask(unknown);
    expect([stranger.status, stranger.headers.get("retry-after") !== null]).toEqual([503, true]);
    expect((await errorBodyOf(stranger)).code).toBe("authentication_unavailable");
  }

  const spent = async (): Promise<string | undefined> => {
    const [key] = await store.spent({ monthStartMs: 0, dayStartMs: 0, account: null });
    return key?.totalNanoUsd;
  };

  it("serves the keys it knows under their last limits, and loses and doubles no row", async () => {
    await start(await cable.open());
    expect((await ask(keys[0])).status).toBe(200);
    await until("the first row is stored", async () => (await rows()) === 1);
    cable.change("cut");
    await readyIs("degraded", "away");
    await holdsOn();
    const keyed = await ask(keys[0], { "idempotency-key": "k" });
    expect([keyed.status, (await errorBodyOf(keyed)).code]).toEqual([503, "idempotency_unavailable"]);
    cable.change("whole");
    await readyIs("ready", "ok");
    // The one that its limit refused is a row of zeros.
    await until("every row is stored", async () => (await rows()) === LIMIT + 1);
    expect(await spent()).toBe(String(LIMIT * 5 * 7));
  });

  it("serves the keys it knows while its server takes questions and never answers", async () => {
    await start(await cable.open());
    expect((await ask(keys[0])).status).toBe(200);
    await until("the first row is stored", async () => (await rows()) === 1);
    cable.change("silent");
    expect((await ask(keys[0])).status).toBe(200);
    cable.change("whole");
    await until("every row is stored", async () => (await rows()) === 2);
    expect(await spent()).toBe(String(2 * 5 * 7));
  });

  it("serves the keys it knows while another process holds the lock of an embedded database", async () => {
    await start(`file:${file}`);
    expect((await ask(keys[0])).status).toBe(200);
    await until("the first row is stored", async () => (await rows()) === 1);
    lock = createClient({ url: `file:${file}`, timeout: 5_000, concurrency: 1 });
    const held = await lock.transaction("write");
    for (let call = 0; call < 3; call += 1) {
      const answer = await ask(keys[0]);
      expect(answer.status).toBe(200);
      await answer.text();
    }
    expect(await rows()).toBe(1);
    await held.rollback();
    await until("every row is stored", async () => (await rows()) === 4);
  });
});
