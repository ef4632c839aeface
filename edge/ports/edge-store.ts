/** One edge of this database, as its row says. Plain JSON. */
export interface EdgeMember {
  readonly name: string;
  /** The process: a restart has another. */
  readonly run: string;
  /** By the database's clock; zero or less when its lease has ended. */
  readonly leaseLeftMs: number;
  /** It takes its limits in slices: what it may still use is in the database. */
  readonly sharing: boolean;
}

export interface EdgeIdentity {
  readonly name: string;
  /** The data directory: two edges with one name differ in it. */
  readonly home: string;
  readonly run: string;
}

export type JoinAnswer =
  | { readonly kind: "joined"; readonly members: readonly EdgeMember[] }
  /** Another live edge has the name. */
  | { readonly kind: "taken"; readonly freeInMs: number };

/** What another edge's process may still hold, and who answers hosts with a desired state. */
export interface RenewAnswer {
  /** False when another process has this edge's name by now. */
  readonly mine: boolean;
  readonly members: readonly EdgeMember[];
  /** The number of the placement lease where this edge holds it; null where another does. */
  readonly placement: number | null;
}

/** What several edges on one database tell each other through it. A rejection means that the store is away. */
export interface EdgeStore {
  /** Takes the name for this process, `sharing` where others are there. */
  joinEdge(edge: EdgeIdentity, ttlMs: number): Promise<JoinAnswer>;
  /** Every edge that is known, dead ones for a day. Reads only. */
  edges(): Promise<readonly EdgeMember[]>;
  /** Another term for this edge's lease, and for that on placement; takes the latter when nobody live holds it. */
  renewEdge(edge: EdgeIdentity, term: { readonly ttlMs: number; readonly sharing: boolean }): Promise<RenewAnswer>;
  /** A clean end: the name, the placement and every slice are free at once. */
  leaveEdge(edge: EdgeIdentity): Promise<void>;
}
