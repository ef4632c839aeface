import path from "node:path";
import { Worker } from "node:worker_threads";
import type { Logger } from "../../shared/logging/logger.ts";
import { TransientMap } from "../../shared/transient-map.ts";
import { StoreConflict } from "../ports/key-store.ts";
import type { Store } from "../store/store.libsql.ts";
import { OperatorError } from "./operator-error.ts";
import { packageRoot } from "./package-root.ts";
import type { MigrationLine, StoreRequest, StoreResponse } from "./store-messages.ts";

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

/**
 * The thread holds batches for an instant and pages of an export: a small young generation serves it as well as a large
 * one, and the less the old one may grow, the sooner V8 collects it.
 */
const THREAD_LIMITS = { maxYoungGenerationSizeMb: 6, maxOldGenerationSizeMb: 512 };

/** The store over an embedded file, which lives in a thread of its own. A thread that dies is started again. */
export class WorkerStore implements Store {
  readonly #options: WorkerStoreOptions;
  readonly #waiting = new TransientMap<number, Waiting>();
  #worker: Worker | null = null;
  #lastId = 0;
  #closed = false;

  constructor(options: WorkerStoreOptions) {
    this.#options = options;
  }

  // Values are plain JSON both ways, and the thread runs the same interface, so an answer has its method's type.
  readonly findKey: Store["findKey"] = (...args) => this.#ask("findKey", args);
  readonly findHostByToken: Store["findHostByToken"] = (...args) => this.#ask("findHostByToken", args);
  readonly keyRevision: Store["keyRevision"] = (...args) => this.#ask("keyRevision", args);
  readonly createKey: Store["createKey"] = (...args) => this.#ask("createKey", args);
  readonly listKeys: Store["listKeys"] = (...args) => this.#ask("listKeys", args);
  readonly updateKey: Store["updateKey"] = (...args) => this.#ask("updateKey", args);
  readonly createProject: Store["createProject"] = (...args) => this.#ask("createProject", args);
  readonly listProjects: Store["listProjects"] = (...args) => this.#ask("listProjects", args);
  readonly updateProject: Store["updateProject"] = (...args) => this.#ask("updateProject", args);
  readonly createAccount: Store["createAccount"] = (...args) => this.#ask("createAccount", args);
  readonly listAccounts: Store["listAccounts"] = (...args) => this.#ask("listAccounts", args);
  readonly updateAccount: Store["updateAccount"] = (...args) => this.#ask("updateAccount", args);
  readonly revokeKey: Store["revokeKey"] = (...args) => this.#ask("revokeKey", args);
  readonly enrollHost: Store["enrollHost"] = (...args) => this.#ask("enrollHost", args);
  readonly listHosts: Store["listHosts"] = (...args) => this.#ask("listHosts", args);
  readonly revokeHost: Store["revokeHost"] = (...args) => this.#ask("revokeHost", args);
  readonly record: Store["record"] = (...args) => this.#ask("record", args);
  readonly usagePage: Store["usagePage"] = (...args) => this.#ask("usagePage", args);
  readonly requests: Store["requests"] = (...args) => this.#ask("requests", args);
  readonly proofSnapshot: Store["proofSnapshot"] = (...args) => this.#ask("proofSnapshot", args);
  readonly spent: Store["spent"] = (...args) => this.#ask("spent", args);
  readonly usageHours: Store["usageHours"] = (...args) => this.#ask("usageHours", args);
  readonly rollUp: Store["rollUp"] = (...args) => this.#ask("rollUp", args);
  readonly claimAnswer: Store["claimAnswer"] = (...args) => this.#ask("claimAnswer", args);
  readonly keepAnswer: Store["keepAnswer"] = (...args) => this.#ask("keepAnswer", args);
  readonly dropClaim: Store["dropClaim"] = (...args) => this.#ask("dropClaim", args);
  readonly renewClaims: Store["renewClaims"] = (...args) => this.#ask("renewClaims", args);
  readonly forgetAnswers: Store["forgetAnswers"] = (...args) => this.#ask("forgetAnswers", args);
  readonly priceVersion: Store["priceVersion"] = (...args) => this.#ask("priceVersion", args);
  readonly joinEdge: Store["joinEdge"] = (...args) => this.#ask("joinEdge", args);
  readonly edges: Store["edges"] = (...args) => this.#ask("edges", args);
  readonly renewEdge: Store["renewEdge"] = (...args) => this.#ask("renewEdge", args);
  readonly leaveEdge: Store["leaveEdge"] = (...args) => this.#ask("leaveEdge", args);
  readonly noteOpenRequests: Store["noteOpenRequests"] = (...args) => this.#ask("noteOpenRequests", args);
  readonly openRequestIds: Store["openRequestIds"] = (...args) => this.#ask("openRequestIds", args);
  readonly takeSlices: Store["takeSlices"] = (...args) => this.#ask("takeSlices", args);
  readonly dropFormerSlices: Store["dropFormerSlices"] = (...args) => this.#ask("dropFormerSlices", args);
  readonly adopt: Store["adopt"] = (...args) => this.#ask("adopt", args);
  readonly settleAbandoned: Store["settleAbandoned"] = (...args) => this.#ask("settleAbandoned", args);

  /** Brings the file to this program's version, before anything else is asked. Rejects with OperatorError when it cannot. */
  async migrate(nowMs: number): Promise<void> {
    const lines = await this.#ask<readonly MigrationLine[]>("migrate", [nowMs]);
    for (const { message, fields } of lines) this.#options.logger.info(message, fields);
  }

  /** Waits for what runs, closes the database and ends the thread. */
  async close(): Promise<void> {
    if (this.#worker !== null) await this.#ask("close", []);
    this.#closed = true;
    await this.#worker?.terminate();
    this.#worker = null;
  }

  #ask<Result>(method: StoreRequest["method"], args: readonly unknown[]): Promise<Result> {
    if (this.#closed) return Promise.reject(new Error("the store is closed"));
    return new Promise<Result>((resolve, reject) => {
      const id = ++this.#lastId;
      // oxlint-disable-next-line typescript/no-unsafe-type-assertion -- the thread is this package's own code
      this.#waiting.set(id, { resolve: (value) => resolve(value as Result), reject });
      try {
        const request: StoreRequest = { id, method, args: JSON.stringify(args) };
        // oxlint-disable-next-line unicorn/require-post-message-target-origin -- a thread, not a window
        this.#thread().postMessage(request);
      } catch (thrown) {
        this.#waiting.delete(id);
        reject(thrown instanceof Error ? thrown : new Error(String(thrown)));
      }
    });
  }

  #thread(): Worker {
    if (this.#worker !== null) return this.#worker;
    const worker = new Worker(threadFile(), {
      workerData: { file: this.#options.file },
      resourceLimits: THREAD_LIMITS,
    });
    worker.on("message", (response: StoreResponse) => this.#take(response));
    worker.on("error", (error) => this.#options.logger.error("the database thread failed", {}, error));
    worker.on("exit", () => {
      if (this.#worker === worker) this.#worker = null;
      const lost = [...this.#waiting.values()];
      this.#waiting.clear();
      for (const waiting of lost) waiting.reject(new Error("the database thread ended"));
    });
    this.#worker = worker;
    return worker;
  }

  #take(response: StoreResponse): void {
    const waiting = this.#waiting.take(response.id);
    if (waiting === undefined) return;
    if (response.ok) waiting.resolve(response.value);
    else waiting.reject(errorOf(response.name, response.message));
  }
}

function errorOf(name: string, message: string): Error {
  if (name === "StoreConflict") return new StoreConflict(message);
  if (name === "OperatorError") return new OperatorError(message);
  const error = new Error(message);
  error.name = name;
  return error;
}
