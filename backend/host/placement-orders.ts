import { readFileSync, renameSync, writeFileSync } from "node:fs";
import { z } from "zod";
import type { Logger } from "../../shared/logging/logger.ts";
import type { Answer } from "../../shared/protocol/answer.ts";

type Order = NonNullable<Answer["desired"]>;

const fileSchema = z.object({ lease_number: z.int(), generation: z.int() });

/**
 * Whose word about what this host should hold is the newest. Edges take turns by a lease whose number grows with each
 * change of hands; an edge that has not heard yet that its turn is over is not listened to. Outlives the process.
 */
export class PlacementOrders {
  readonly #file: string;
  readonly #logger: Logger;
  #leaseNumber: number;
  #generation: number;
  readonly #refused = new Set<string>();

  constructor(options: { readonly file: string; readonly logger: Logger }) {
    this.#file = options.file;
    this.#logger = options.logger;
    const known = fileSchema.safeParse(readJson(options.file));
    this.#leaseNumber = known.success ? known.data.lease_number : 0;
    this.#generation = known.success ? known.data.generation : 0;
  }

  /** False for an order of a lower lease, or of the same one and older than what was ordered before. */
  take(server: string, { lease_number, generation }: Order): boolean {
    const isOlder =
      lease_number < this.#leaseNumber || (lease_number === this.#leaseNumber && generation < this.#generation);
    if (isOlder) {
      if (!this.#refused.has(server))
        this.#logger.warn("an edge whose placement lease is over ordered what to hold; refused", {
          server,
          lease_number,
          newest: this.#leaseNumber,
        });
      this.#refused.add(server);
      return false;
    }
    this.#refused.delete(server);
    if (lease_number === this.#leaseNumber && generation === this.#generation) return true;
    this.#leaseNumber = lease_number;
    this.#generation = generation;
    this.#save();
    return true;
  }

  #save(): void {
    const draft = `${this.#file}.new`;
    try {
      writeFileSync(draft, `${JSON.stringify({ lease_number: this.#leaseNumber, generation: this.#generation })}\n`, {
        mode: 0o600,
      });
      renameSync(draft, this.#file);
    } catch (error) {
      this.#logger.error("the newest placement order cannot be noted", { file: this.#file }, error);
    }
  }
}

function readJson(file: string): unknown {
  try {
    return JSON.parse(readFileSync(file, "utf8"));
  } catch {
    return null;
  }
}
