import path from "node:path";
import { Worker } from "node:worker_threads";
import type { Logger } from "../../shared/logging/logger.ts";
import { StoreConflict } from "../ports/key-store.ts";
import type { Store } from "../store/store.libsql.ts";
import { packageRoot } from "./package-root.ts";
import type { StoreMethod, StoreRequest, StoreResponse } from "./store-messages.ts";

export interface WorkerStoreOptions {
  readonly file: string;
  readonly logger: Logger;
}

interface Waiting {
  resolve(value: unknown): void;
  reject(reason: Error): void;
}

/** Threads cannot run TypeScript, so the built file is started, also where this one runs from its source. */
const threadFile = (): string => path.join(packageRoot(), "dist", "edge", "node", "database-thread.js");

/** The store over an embedded file, which lives in a thread of its own. A thread that dies is started again. */
export class WorkerStore implements Store {
  readonly #options: WorkerStoreOptions;
  readonly #waiting = new Map<number, Waiting>();
  #worker: Worker | null = null;
  #lastId = 0;
  #closed = false;

  constructor(options: WorkerStoreOptions) {
    this.#options = options;
  }

  readonly findKey = this.#method("findKey");
  readonly findHostByToken = this.#method("findHostByToken");
  readonly keyRevision = this.#method("keyRevision");
  readonly createKey = this.#method("createKey");
  readonly listKeys = this.#method("listKeys");
  readonly revokeKey = this.#method("revokeKey");
  readonly enrollHost = this.#method("enrollHost");
  readonly listHosts = this.#method("listHosts");
  readonly revokeHost = this.#method("revokeHost");
  readonly record = this.#method("record");
  readonly usagePage = this.#method("usagePage");
  readonly requests = this.#method("requests");
  readonly proofSnapshot = this.#method("proofSnapshot");
  readonly spent = this.#method("spent");
  readonly priceVersion = this.#method("priceVersion");

  /** Waits for what runs, closes the database and ends the thread. */
  async close(): Promise<void> {
    if (this.#worker !== null) await this.#ask("close", []);
    this.#closed = true;
    await this.#worker?.terminate();
    this.#worker = null;
  }

  #method<Name extends StoreMethod>(method: Name): Store[Name] {
    const call = (...args: readonly unknown[]): Promise<unknown> => this.#ask(method, args);
    // Checked by the thread's own types on the other side; values are plain JSON both ways.
    return call as Store[Name];
  }

  #ask(method: StoreMethod | "close", args: readonly unknown[]): Promise<unknown> {
    if (this.#closed) return Promise.reject(new Error("the store is closed"));
    return new Promise((resolve, reject) => {
      const id = ++this.#lastId;
      this.#waiting.set(id, { resolve, reject });
      try {
        this.#thread().postMessage({ id, method, args } as StoreRequest);
      } catch (thrown) {
        this.#waiting.delete(id);
        reject(thrown instanceof Error ? thrown : new Error(String(thrown)));
      }
    });
  }

  #thread(): Worker {
    if (this.#worker !== null) return this.#worker;
    const worker = new Worker(threadFile(), { workerData: { file: this.#options.file } });
    worker.on("message", (response: StoreResponse) => this.#take(response));
    worker.on("error", (error) => this.#options.logger.error("the database thread failed", {}, error));
    worker.on("exit", () => {
      if (this.#worker === worker) this.#worker = null;
      const lost = [...this.#waiting.values()];
      this.#waiting.clear();
      for (const { reject } of lost) reject(new Error("the database thread ended"));
    });
    this.#worker = worker;
    return worker;
  }

  #take(response: StoreResponse): void {
    const waiting = this.#waiting.get(response.id);
    if (waiting === undefined) return;
    this.#waiting.delete(response.id);
    if (response.ok) waiting.resolve(response.value);
    else waiting.reject(errorOf(response.name, response.message));
  }
}

function errorOf(name: string, message: string): Error {
  if (name === "StoreConflict") return new StoreConflict(message);
  const error = new Error(message);
  error.name = name;
  return error;
}
