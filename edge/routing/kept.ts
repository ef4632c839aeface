/** Those that pass; the list itself where all do, as nearly always in choosing a machine. */
export function kept<Item>(items: readonly Item[], passes: (item: Item) => boolean): readonly Item[] {
  for (const item of items) if (!passes(item)) return items.filter(passes);
  return items;
}
