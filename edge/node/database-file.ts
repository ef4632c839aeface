import path from "node:path";
import { fileURLToPath, pathToFileURL } from "node:url";
import type { Client } from "@libsql/client";

/** A statement waits this long for a lock inside the driver; longer waits are the store's, between its tries. */
const LOCK_TIMEOUT_MS = 200;

/** The path of a `file:` URL, encoded or not; null for the URL of a server. */
export function databaseFile(databaseUrl: string): string | null {
  if (databaseUrl.startsWith("file://")) return fileURLToPath(databaseUrl);
  return databaseUrl.startsWith("file:") ? path.resolve(databaseUrl.slice("file:".length)) : null;
}

/** One connection to an embedded file: WAL, every commit on the disk, foreign keys on. */
export async function connectFile(file: string, timeoutMs = LOCK_TIMEOUT_MS): Promise<Client> {
  // A serving edge has its database in a thread of its own: only there is the driver needed.
  const { createClient } = await import("@libsql/client");
  const client = createClient({
    url: pathToFileURL(file).href,
    timeout: timeoutMs,
    intMode: "bigint",
    concurrency: 1,
  });
  try {
    await client.execute("pragma journal_mode = wal");
    await client.execute("pragma synchronous = full");
    await client.execute("pragma foreign_keys = on");
  } catch (thrown) {
    client.close();
    throw thrown;
  }
  return client;
}
