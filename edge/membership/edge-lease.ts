/** An edge's row. Times are of the database's clock, which is the only one that all edges share. */
export interface EdgeLease {
  readonly name: string;
  readonly home: string;
  readonly run: string;
  readonly expiresAtMs: number;
}

/** What a dead edge may still have spent stays counted for this long, unless it comes back before. */
export const DEAD_EDGE_KEPT_MS = 24 * 3_600_000;

export const isLive = (lease: Pick<EdgeLease, "expiresAtMs">, nowMs: number): boolean => lease.expiresAtMs > nowMs;

/**
 * Whether an edge may have its name: not while another live one has it. A lease of the same data directory is that of
 * this edge's former process, which is gone, since only one process at a time can have the directory.
 */
export function nameIsFree(known: EdgeLease | null, home: string, nowMs: number): boolean {
  return known === null || known.home === home || !isLive(known, nowMs);
}

export interface PlacementLease {
  readonly holder: string;
  readonly holderRun: string;
  readonly number: number;
}

/**
 * The placement lease after a renewal by `me`. It lasts as long as its holder's own lease, and every change of hands,
 * a restart of the holder included, has a higher number: hosts refuse the orders of a lower one.
 */
export function placementAfter(
  lease: PlacementLease | null,
  holder: EdgeLease | null,
  me: Pick<EdgeLease, "name" | "run">,
  nowMs: number,
): PlacementLease {
  if (lease === null) return { holder: me.name, holderRun: me.run, number: 1 };
  const held = holder !== null && holder.run === lease.holderRun && isLive(holder, nowMs);
  return held ? lease : { holder: me.name, holderRun: me.run, number: lease.number + 1 };
}
