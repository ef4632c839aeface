import type { RequestNames } from "./running-requests.ts";

/**
 * Requests that were turned away before any engine began them. Their edge was told so, but may have closed the connection
 * just before; it asks then. Bounded: the oldest are forgotten.
 */
export class RefusedRequests {
  readonly #limit: number;
  readonly #keys = new Set<string>();

  constructor(limit = 10_000) {
    this.#limit = limit;
  }

  add(names: RequestNames): void {
    this.#keys.add(keyOf(names));
    if (this.#keys.size <= this.#limit) return;
    for (const oldest of this.#keys) {
      this.#keys.delete(oldest);
      return;
    }
  }

  has(names: RequestNames): boolean {
    return this.#keys.has(keyOf(names));
  }
}

const keyOf = ({ edge, requestId, attempt }: RequestNames): string => `${edge} ${requestId}.${attempt}`;
