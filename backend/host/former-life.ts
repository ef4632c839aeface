import { readdirSync, readFileSync } from "node:fs";
import { readFile, rm, writeFile } from "node:fs/promises";
import path from "node:path";
import { z } from "zod";
import { type AccountBoard, type BoardAccount, readAccountBoard } from "../ports/account-board.ts";
import { isRunFolder } from "./run-folder.ts";

/** What a host notes in its run folder, beside the boards of its engines. */
const lifeSchema = z.object({
  epoch: z.int(),
  /** Names of its replicas; the boards of the one at place N are called `eN-….accounts`. */
  replicas: z.array(z.string()),
});
type Life = z.infer<typeof lifeSchema>;

const LIFE_FILE = "life.json";
/** Engines of a host that died end by themselves within this, cancelling what runs; their boards are final then. */
const ENGINES_END_MS = 4_000;

export async function noteLife(folder: string, life: Life): Promise<void> {
  await writeFile(path.join(folder, LIFE_FILE), JSON.stringify(life), { mode: 0o600 });
}

/**
 * What a host that was killed left in its run folder: its engines' accounts of the requests that ran then. The folder
 * stays until this life has answered for it.
 */
export class FormerLife {
  readonly #folder: string;
  readonly #life: Life;
  readonly #endedAtLatestMs: number;

  private constructor(folder: string, life: Life, nowMs: number) {
    this.#folder = folder;
    this.#life = life;
    this.#endedAtLatestMs = nowMs + ENGINES_END_MS;
  }

  /** Null where there is none, or none that can be read. */
  static async open(folder: string, nowMs: number): Promise<FormerLife | null> {
    if (!isRunFolder(folder)) return null;
    try {
      const life = lifeSchema.parse(JSON.parse(await readFile(path.join(folder, LIFE_FILE), "utf8")));
      return new FormerLife(folder, life, nowMs);
    } catch {
      return null;
    }
  }

  get epoch(): number {
    return this.#life.epoch;
  }

  /**
   * What was computed of a request of that life: its final account, null for one that no engine began, undefined where
   * that is not known (yet).
   */
  accountOf(replica: string, label: string, nowMs: number): BoardAccount | null | undefined {
    const boards = this.#boardsOf(replica);
    const account = boards.map((board) => board.accountOf(label)).find((found) => found !== null);
    const areFinal = nowMs >= this.#endedAtLatestMs;
    if (account !== undefined) return account.ended || areFinal ? account : undefined;
    return areFinal && boards.length > 0 && boards.every(({ isComplete }) => isComplete) ? null : undefined;
  }

  async forget(): Promise<void> {
    await rm(this.#folder, { recursive: true, force: true });
  }

  #boardsOf(replica: string): AccountBoard[] {
    const place = this.#life.replicas.indexOf(replica);
    try {
      return readdirSync(this.#folder)
        .filter((name) => name.startsWith(`e${place}-`) && name.endsWith(".accounts"))
        .flatMap((name) => readAccountBoard(readFileSync(path.join(this.#folder, name))) ?? []);
    } catch {
      return [];
    }
  }
}
