/** A model as far as fallbacks go. */
export interface FallbackModel {
  readonly name: string;
  readonly aliases: readonly string[];
  /** Names or aliases of models that answer when this one cannot. */
  readonly fallbacks: readonly string[];
}

/** The names along one way from a model back to itself, it at both ends; null when there is none. */
export function fallbackCycle(models: readonly FallbackModel[]): readonly string[] | null {
  const next = edgesOf(models);
  const clean = new Set<string>();
  for (const { name } of models) {
    const cycle = cycleFrom(name, next, clean);
    if (cycle !== null) return cycle;
  }
  return null;
}

/**
 * For each model that has any, who is asked in its stead and in which order: its fallbacks, each followed by its own.
 * There is no cycle.
 */
export function fallbackOrders(models: readonly FallbackModel[]): ReadonlyMap<string, readonly string[]> {
  const next = edgesOf(models);
  const orders = new Map<string, readonly string[]>();
  for (const { name, fallbacks } of models) {
    if (fallbacks.length === 0) continue;
    const order = new Set<string>();
    // A stack rather than recursion: a chain may be long.
    const stack = [...(next.get(name) ?? [])].toReversed();
    for (let model = stack.pop(); model !== undefined; model = stack.pop()) {
      if (order.has(model)) continue;
      order.add(model);
      stack.push(...[...(next.get(model) ?? [])].toReversed());
    }
    orders.set(name, [...order]);
  }
  return orders;
}

/** By model; aliases are replaced by the names of what they stand for. */
function edgesOf(models: readonly FallbackModel[]): ReadonlyMap<string, readonly string[]> {
  const names = new Map(models.flatMap(({ name, aliases }) => [name, ...aliases].map((text) => [text, name] as const)));
  return new Map(models.map(({ name, fallbacks }) => [name, fallbacks.map((text) => names.get(text) ?? text)]));
}

function cycleFrom(
  start: string,
  next: ReadonlyMap<string, readonly string[]>,
  clean: Set<string>,
): readonly string[] | null {
  const path = [start];
  const places = [0];
  while (path.length > 0) {
    const model = path.at(-1) ?? start;
    const place = places.at(-1) ?? 0;
    const following = clean.has(model) ? undefined : next.get(model)?.[place];
    if (following === undefined) {
      clean.add(model);
      path.pop();
      places.pop();
      continue;
    }
    places[places.length - 1] = place + 1;
    const seen = path.indexOf(following);
    if (seen !== -1) return [...path.slice(seen), following];
    path.push(following);
    places.push(0);
  }
  return null;
}
