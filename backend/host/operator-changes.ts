import { mkdir, open, readFile, rename } from "node:fs/promises";
import path from "node:path";
import { z } from "zod";
import type { Logger } from "../../shared/logging/logger.ts";
import type { EngineOptions } from "../ports/engine-options.ts";
import { type AttachSae, NO_WISHES, type OperatorWishes, operatorWishesSchema } from "../ports/operator-wishes.ts";
import type { WatchListDefinition } from "../ports/watch-lists.ts";

const fileSchema = z.object({ models: z.record(z.string(), operatorWishesSchema) });

export interface OperatorChangesOptions {
  readonly file: string;
  readonly logger: Logger;
}

/**
 * What operators have changed of each model at run time, kept in a file so that the next engine and the next host begin
 * with it. Changes of one model are made one after the other, and an engine starts between two of them only.
 */
export class OperatorChanges {
  readonly #options: OperatorChangesOptions;
  readonly #models = new Map<string, OperatorWishes>();
  readonly #tails = new Map<string, Promise<unknown>>();
  #writing: Promise<unknown> = Promise.resolve();

  private constructor(options: OperatorChangesOptions) {
    this.#options = options;
  }

  static async open(options: OperatorChangesOptions): Promise<OperatorChanges> {
    const { file, logger } = options;
    const changes = new OperatorChanges(options);
    let text: string;
    try {
      text = await readFile(file, "utf8");
    } catch {
      return changes;
    }
    const read = fileSchema.safeParse(parseJson(text));
    if (!read.success) {
      const aside = `${file}.unreadable`;
      await rename(file, aside);
      logger.error("the operator's changes cannot be read; models start as configured", { moved_to: aside });
      return changes;
    }
    for (const [model, wishes] of Object.entries(read.data.models)) changes.#models.set(model, wishes);
    return changes;
  }

  of(model: string): OperatorWishes {
    return this.#models.get(model) ?? NO_WISHES;
  }

  /** As `of`, once every change that has begun is made. */
  async settled(model: string): Promise<OperatorWishes> {
    for (let tail = this.#tails.get(model); tail !== undefined; tail = this.#tails.get(model)) await tail;
    return this.of(model);
  }

  /** Runs one change of a model after those that came before it. */
  change<Result>(model: string, work: () => Promise<Result>): Promise<Result> {
    const before = this.#tails.get(model) ?? Promise.resolve();
    const result = before.then(work);
    const tail: Promise<unknown> = result
      .catch(() => undefined)
      .finally(() => {
        if (this.#tails.get(model) === tail) this.#tails.delete(model);
      });
    this.#tails.set(model, tail);
    return result;
  }

  /** Puts down what a model is to begin with from now on; false when it holds only until this host ends. */
  async remember(model: string, wishes: OperatorWishes): Promise<boolean> {
    if (isEmpty(wishes)) this.#models.delete(model);
    else this.#models.set(model, wishes);
    const written = this.#writing.then(() => this.#write());
    this.#writing = written.catch(() => undefined);
    try {
      await written;
      return true;
    } catch (error) {
      this.#options.logger.error("the operator's changes cannot be written", { file: this.#options.file }, error);
      return false;
    }
  }

  async #write(): Promise<void> {
    const { file } = this.#options;
    const draft = `${file}.new`;
    await mkdir(path.dirname(file), { recursive: true, mode: 0o700 });
    const handle = await open(draft, "w", 0o600);
    try {
      await handle.writeFile(`${JSON.stringify({ models: Object.fromEntries(this.#models) }, null, 2)}\n`);
      await handle.sync();
    } finally {
      await handle.close();
    }
    await rename(draft, file);
  }
}

/** An SAE was attached or swapped. One that is attached as it is configured needs no remembering. */
export function withAttached(
  wishes: OperatorWishes,
  sae: AttachSae,
  configured: EngineOptions["saes"],
): OperatorWishes {
  const options = {
    id: sae.id,
    // Relative to where the engine ran, which was started by this process.
    path: path.resolve(sae.path),
    layer: sae.layer ?? null,
    calibration_text:
      sae.calibration_text === null || sae.calibration_text === undefined ? null : path.resolve(sae.calibration_text),
    serve_anyway: sae.serve_anyway ?? false,
    required: false,
  };
  const rest = without(wishes, sae.id);
  const asConfigured = configured.some(
    (one) => JSON.stringify({ ...one, required: false }) === JSON.stringify(options),
  );
  return asConfigured ? rest : { ...rest, attached: [...rest.attached, options] };
}

/** An SAE was detached; one that is configured must be left out at the next start. */
export function withDetached(wishes: OperatorWishes, id: string, configured: EngineOptions["saes"]): OperatorWishes {
  const rest = without(wishes, id);
  return configured.some((sae) => sae.id === id) ? { ...rest, detached: [...rest.detached, id] } : rest;
}

/** A watch list was set, as the engine settled it. */
export function withWatchList(wishes: OperatorWishes, list: WatchListDefinition): OperatorWishes {
  const others = withoutWatchList(wishes, list.id);
  return { ...others, watch_lists: [...others.watch_lists, list] };
}

export function withoutWatchList(wishes: OperatorWishes, id: string): OperatorWishes {
  return { ...wishes, watch_lists: wishes.watch_lists.filter((list) => list.id !== id) };
}

const without = (wishes: OperatorWishes, id: string): OperatorWishes => ({
  ...wishes,
  attached: wishes.attached.filter((sae) => sae.id !== id),
  detached: wishes.detached.filter((other) => other !== id),
});

const isEmpty = (wishes: OperatorWishes): boolean => Object.values(wishes).every(({ length }) => length === 0);

function parseJson(text: string): unknown {
  try {
    return JSON.parse(text);
  } catch {
    return null;
  }
}
