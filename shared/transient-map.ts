interface Slot<Value> {
  value: Value | null;
}

/**
 * A `Map` for entries that come and go with requests. V8 gives a `Map` a new table each time it fills up with deleted
 * entries, and the old table points to the new one: once such a table is in the old generation, every later one is kept
 * until a full collection, and so is all that was in the map when it was replaced, which is the whole state of every
 * request. Here a deleted entry's slot is emptied, so that such tables hold slots and keys alone.
 *
 * Order and what iteration sees are those of `Map`.
 */
export class TransientMap<Key, Value extends object> {
  readonly #slots = new Map<Key, Slot<Value>>();

  get size(): number {
    return this.#slots.size;
  }

  has(key: Key): boolean {
    return this.#slots.has(key);
  }

  get(key: Key): Value | undefined {
    return this.#slots.get(key)?.value ?? undefined;
  }

  set(key: Key, value: Value): void {
    const slot = this.#slots.get(key);
    if (slot === undefined) this.#slots.set(key, { value });
    else slot.value = value;
  }

  /** Deletes it; undefined when there is none. */
  take(key: Key): Value | undefined {
    const slot = this.#slots.get(key);
    if (slot === undefined) return undefined;
    const { value } = slot;
    slot.value = null;
    this.#slots.delete(key);
    return value ?? undefined;
  }

  delete(key: Key): boolean {
    return this.take(key) !== undefined;
  }

  clear(): void {
    for (const slot of this.#slots.values()) slot.value = null;
    this.#slots.clear();
  }

  /** The value that was set first of those that are left. */
  first(): Value | undefined {
    for (const { value } of this.#slots.values()) return value ?? undefined;
    return undefined;
  }

  *values(): Generator<Value> {
    for (const { value } of this.#slots.values()) if (value !== null) yield value;
  }

  *[Symbol.iterator](): Generator<[Key, Value]> {
    for (const [key, { value }] of this.#slots) if (value !== null) yield [key, value];
  }
}
