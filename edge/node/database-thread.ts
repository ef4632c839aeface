import { pathToFileURL } from "node:url";
import { parentPort, workerData } from "node:worker_threads";
import { z } from "zod";
import { LibsqlStore } from "../store/store.libsql.ts";
import { nodeClock } from "./clock.node.ts";
import { migrateDatabase } from "./database.ts";
import { connectFile } from "./database-file.ts";
import type { MigrationLine, StoreRequest, StoreResponse } from "./store-messages.ts";

/**
 * The thread that holds the embedded database: its driver is synchronous, and a lock held by another process would
 * stop the event loop that serves requests.
 */
function serve(file: string): void {
  const port = parentPort;
  if (port === null) throw new Error("this file runs as a worker thread only");
  const store = new LibsqlStore({ clock: nodeClock, isFile: true, connect: () => connectFile(file) });
  port.on("message", (request: StoreRequest) => {
    answer(store, file, request).then(
      (value) => port.postMessage({ id: request.id, ok: true, value } satisfies StoreResponse),
      (thrown: unknown) => {
        const { name, message } = thrown instanceof Error ? thrown : new Error(String(thrown));
        port.postMessage({ id: request.id, ok: false, name, message } satisfies StoreResponse);
      },
    );
  });
}

async function answer(store: LibsqlStore, file: string, request: StoreRequest): Promise<unknown> {
  if (request.method === "close") return store.close();
  const args: unknown = JSON.parse(request.args);
  if (request.method === "migrate") return migrated(file, z.tuple([z.number()]).parse(args)[0]);
  const method: unknown = Reflect.get(store, request.method);
  if (typeof method !== "function") throw new TypeError(`the store has no '${request.method}'`);
  if (!Array.isArray(args)) throw new TypeError("a call's arguments are a list");
  const result: unknown = Reflect.apply(method, store, args);
  return result;
}

/** Here and not where requests are served: the driver is megabytes of code, which this thread has anyway. */
async function migrated(file: string, nowMs: number): Promise<readonly MigrationLine[]> {
  const lines: MigrationLine[] = [];
  await migrateDatabase({
    databaseUrl: pathToFileURL(file).href,
    clock: { ...nodeClock, nowMs: () => nowMs },
    logger: { info: (message, fields = {}) => lines.push({ message, fields }) },
  });
  return lines;
}

serve(z.object({ file: z.string() }).parse(workerData).file);
