import { NO_SCOPE_LIMITS } from "../../edge/ports/limits.ts";
import { mkdtempSync, rmSync } from "node:fs";
import { once } from "node:events";
import { createServer } from "node:http";
import { tmpdir } from "node:os";
import path from "node:path";
import { expect, it } from "vitest";
import { nodeClock } from "../../edge/node/clock.node.ts";
import { directStore, openCommandStore } from "../../edge/node/database.ts";
import { silentLogger } from "../support/dispatch-fakes.ts";
import { HranaServer } from "../support/hrana-server.ts";

const LIMITS = { ...NO_SCOPE_LIMITS, requestsPerMinute: 1, budgetNanoUsd: "9007199254740993" };

it("a database server is migrated and used", async () => {
  const folder = mkdtempSync(path.join(tmpdir(), "steerage-server-"));
  const server = await HranaServer.start({ file: path.join(folder, "a.db"), token: "t" });
  const options = { databaseUrl: server.url, authToken: "t", clock: nodeClock, logger: silentLogger };
  const store = await openCommandStore(options);
  try {
    const key = { keyId: "k", secretSha256: "00", project: "p", account: null, limits: LIMITS, band: null };
    await store.createKey({ ...key, createdAtMs: 1 });
    expect(await store.findKey("k")).toMatchObject({ account: "default", keyLimits: LIMITS });
  } finally {
    await store.close();
    await server.stop();
    rmSync(folder, { recursive: true, force: true });
  }
});

it("a database server that takes a question and never answers is given up", async () => {
  let asked = 0;
  const server = createServer(() => asked++).listen(0, "127.0.0.1");
  await once(server, "listening");
  const address = server.address();
  if (address === null || typeof address === "string") throw new Error("a TCP server has an address");
  const databaseUrl = `http://127.0.0.1:${address.port}`;
  const store = await directStore({ databaseUrl, clock: nodeClock, logger: silentLogger, serverTimeoutMs: 100 });
  try {
    await expect(store.keyRevision()).rejects.toThrow(/aborted|time/i);
    expect(asked).toBeGreaterThan(0);
  } finally {
    await store.close();
    server.closeAllConnections();
    server.close();
  }
});
