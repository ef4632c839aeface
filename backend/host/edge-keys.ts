import { mkdir, readFile, rename, writeFile } from "node:fs/promises";
import path from "node:path";
import { calculateJwkThumbprint, importJWK } from "jose";
import { z } from "zod";
import type { Logger } from "../../shared/logging/logger.ts";
import { type EdgeKey, edgeKeySchema } from "../../shared/protocol/answer.ts";
import { isLoopback } from "../config.ts";
import { whyUnproven } from "./answer-check.ts";
import type { DeliveredReport } from "./report-delivery.ts";

/** What the key functions of jose give and take on this runtime. */
export type VerificationKey = Awaited<ReturnType<typeof importJWK>>;

const fileSchema = z.object({
  servers: z.array(z.object({ server: z.string(), edge: z.string(), keys: z.array(edgeKeySchema) })),
});
type KnownServer = z.infer<typeof fileSchema>["servers"][number];

export interface EdgeKeysOptions {
  /** This host's name, for which answers are signed. */
  readonly host: string;
  readonly file: string;
  /** RFC 7638 thumbprints; empty means that those of a first contact over TLS or loopback are trusted. */
  readonly fingerprints: readonly string[];
  readonly logger: Logger;
}

/**
 * The edge keys this host accepts, by agent address. Keys of a first contact are kept on disk; later ones are taken
 * only from an answer that a known one signed, so that an edge can rotate and a stranger cannot step in.
 */
export class EdgeKeys {
  readonly #options: EdgeKeysOptions;
  readonly #servers = new Map<string, KnownServer>();
  readonly #imported = new Map<string, VerificationKey>();
  readonly #offsets = new Map<string, number>();
  /** Why the last answer of an address was refused. */
  readonly #refused = new Map<string, string>();
  #refusals = 0;

  private constructor(options: EdgeKeysOptions) {
    this.#options = options;
  }

  static async open(options: EdgeKeysOptions): Promise<EdgeKeys> {
    const keys = new EdgeKeys(options);
    let text: string;
    try {
      text = await readFile(options.file, "utf8");
    } catch {
      return keys;
    }
    const parsed = fileSchema.safeParse(parseJson(text));
    if (!parsed.success) {
      options.logger.warn("the file of edge keys cannot be read and is started anew", { file: options.file });
      return keys;
    }
    for (const known of parsed.data.servers) {
      const trusted = await keys.#trustedOf(known.keys);
      if (trusted.length > 0) keys.#servers.set(known.server, { ...known, keys: trusted });
    }
    return keys;
  }

  /** The key of an edge by the `iss` and `kid` of its token; null when this host does not trust such a key. */
  async find(edge: string, kid: string): Promise<VerificationKey | null> {
    for (const known of this.#servers.values()) {
      if (known.edge !== edge) continue;
      const key = known.keys.find((candidate) => candidate.kid === kid);
      if (key !== undefined) return this.#import(key);
    }
    return null;
  }

  /** The name an edge gave in its last trusted answer; null before the first. */
  edgeOf(server: string): string | null {
    return this.#servers.get(server)?.edge ?? null;
  }

  /** Answers that were refused since this host's start. */
  get refusals(): number {
    return this.#refusals;
  }

  /** What to add to this host's wall clock to get the edge's, milliseconds; 0 while unknown. */
  clockOffsetMs(edge: string): number {
    return this.#offsets.get(edge) ?? 0;
  }

  /**
   * Takes keys and time from an answer that is proven: signed by a key this host knows of that address, or is told to
   * trust by fingerprint; at a first contact without pins, over TLS or loopback, by one of the answer's own. False: nothing of it may be used.
   */
  async accept(server: string, delivered: DeliveredReport, sentAtMs: number, receivedAtMs: number): Promise<boolean> {
    const { answer } = delivered;
    const trusted = await this.#trustedOf(answer.keys);
    const known = this.#servers.get(server);
    const pinned = this.#options.fingerprints.length > 0;
    const provers = pinned || known === undefined ? trusted : known.keys;
    const unvouched = known === undefined && !pinned && !isVouchedFor(server);
    const why = unvouched
      ? "nothing vouches for a first contact over plain HTTP off loopback"
      : trusted.length === 0
        ? "it names no key that is trusted here"
        : await whyUnproven(delivered, this.#options.host, provers, (key) => this.#import(key));
    if (why !== null) {
      this.#tellRefusal(server, pinned, why);
      return false;
    }
    this.#refused.delete(server);
    this.#offsets.set(answer.edge, Math.round(answer.edge_time - (sentAtMs + receivedAtMs) / 2));
    if (known !== undefined && known.edge === answer.edge && sameKeys(known.keys, trusted)) return true;
    this.#servers.set(server, { server, edge: answer.edge, keys: trusted });
    const fingerprints = await Promise.all(trusted.map((key) => calculateJwkThumbprint(key)));
    this.#options.logger.info(known === undefined && !pinned ? "edge trusted at first contact" : "edge keys taken", {
      server,
      edge: answer.edge,
      fingerprints: fingerprints.join(","),
    });
    await this.#save();
    return true;
  }

  #tellRefusal(server: string, pinned: boolean, why: string): void {
    this.#refusals++;
    if (this.#refused.get(server) === why) return;
    this.#refused.set(server, why);
    this.#options.logger.error("an answer to a report is not trusted, and nothing of it is used", {
      server,
      why,
      refused: this.#refusals,
      remedy: this.#remedy(server, pinned),
    });
  }

  #remedy(server: string, pinned: boolean): string {
    if (pinned) return "check edge_key_fingerprints";
    if (!this.#servers.has(server) && !isVouchedFor(server))
      return "set edge_key_fingerprints to what 'steerage hosts enroll' shows on the edge's machine";
    return `if the edge really has new keys, remove ${this.#options.file} and start again`;
  }

  async #trustedOf(keys: readonly EdgeKey[]): Promise<EdgeKey[]> {
    if (this.#options.fingerprints.length === 0) return [...keys];
    const trusted: EdgeKey[] = [];
    for (const key of keys) {
      if (this.#options.fingerprints.includes(await calculateJwkThumbprint(key))) trusted.push(key);
    }
    return trusted;
  }

  async #import(key: EdgeKey): Promise<VerificationKey> {
    const known = this.#imported.get(key.x);
    if (known !== undefined) return known;
    const imported = await importJWK({ ...key, alg: "EdDSA" });
    this.#imported.set(key.x, imported);
    return imported;
  }

  async #save(): Promise<void> {
    const { file } = this.#options;
    const draft = `${file}.new`;
    await mkdir(path.dirname(file), { recursive: true, mode: 0o700 });
    await writeFile(draft, `${JSON.stringify({ servers: [...this.#servers.values()] }, null, 2)}\n`, { mode: 0o600 });
    await rename(draft, file);
  }
}

/** TLS, or this machine itself, says that it is the edge that answers there. */
function isVouchedFor(server: string): boolean {
  const { protocol, hostname } = new URL(server);
  return protocol === "https:" || isLoopback(hostname);
}

function sameKeys(a: readonly EdgeKey[], b: readonly EdgeKey[]): boolean {
  return a.length === b.length && a.every((key) => b.some((other) => other.kid === key.kid && other.x === key.x));
}

function parseJson(text: string): unknown {
  try {
    return JSON.parse(text);
  } catch {
    return null;
  }
}
