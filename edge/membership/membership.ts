import type { Logger } from "../../shared/logging/logger.ts";
import type { Clock } from "../../shared/time/clock.ts";
import type { EdgeIdentity, EdgeMember, EdgeStore } from "../ports/edge-store.ts";

export interface MembershipDeps {
  readonly clock: Clock;
  readonly logger: Logger;
  readonly store: EdgeStore;
  readonly identity: EdgeIdentity;
  /** `control.lease_ttl` */
  readonly leaseTtlMs: number;
}

/** Another live edge of the same database has this edge's name. */
export class NameTaken extends Error {
  readonly freeInMs: number;

  constructor(freeInMs: number) {
    super("another edge of this database has that name");
    this.name = "NameTaken";
    this.freeInMs = freeInMs;
  }
}

/** Each edge looks this often who else is there; it writes only when a third of its lease is over. */
const LOOK_EVERY_MS = 1_000;
const RENEW_AFTER_SHARE = 1 / 3;

/**
 * This edge among those of its database: keeps its lease, knows the others, and whether it is the one that places
 * models. While the database is away it goes on with what it last knew, and its lease runs out.
 */
export class Membership {
  readonly #deps: MembershipDeps;
  #members: readonly EdgeMember[] = [];
  #placement: number | null = null;
  /** Monotonic, from before the question: on the database's clock the lease ends later. */
  #leaseUntilMs = 0;
  #renewAtMs = 0;
  #isSharing = false;
  #isLost = false;
  #stopped = false;
  #cancelTimer = (): void => undefined;
  #onReturn = (): void => undefined;
  #looking: Promise<void> | null = null;

  constructor(deps: MembershipDeps) {
    this.#deps = deps;
  }

  get name(): string {
    return this.#deps.identity.name;
  }

  /** All that are known but this one, dead ones included. */
  get others(): readonly EdgeMember[] {
    return this.#members.filter(({ name }) => name !== this.name);
  }

  get liveOthers(): readonly EdgeMember[] {
    return this.others.filter(({ leaseLeftMs }) => leaseLeftMs > 0);
  }

  /** Somebody else is there, or was lately. */
  get hasOthers(): boolean {
    return this.others.length > 0;
  }

  /** Runs `act` whenever this edge has its lease again after it ended, when others may have acted in its stead. */
  whenReturned(act: () => void): void {
    this.#onReturn = act;
  }

  /** This edge takes its limits in slices from now on. */
  share(): void {
    this.#isSharing = true;
  }

  /** Whether nobody can have taken over from this edge yet. */
  get holdsLease(): boolean {
    return !this.#isLost && this.#deps.clock.monotonicMs() < this.#leaseUntilMs;
  }

  /** The number under which this edge may tell hosts what to hold; null where another edge does. */
  get placement(): number | null {
    return this.holdsLease ? this.#placement : null;
  }

  /** Takes the name and begins to keep it. Throws NameTaken. */
  async join(): Promise<void> {
    const { clock, leaseTtlMs, store, identity } = this.#deps;
    const askedAtMs = clock.monotonicMs();
    const answer = await store.joinEdge(identity, leaseTtlMs);
    if (answer.kind === "taken") throw new NameTaken(answer.freeInMs);
    this.#leaseUntilMs = askedAtMs + leaseTtlMs;
    this.#see(answer.members);
    this.#isSharing = answer.members.some(({ name, sharing }) => name === this.name && sharing);
    await this.look();
    this.#schedule();
  }

  /** Reads who is there, and renews the lease when that is due. Never rejects. */
  look(): Promise<void> {
    this.#looking ??= this.#look().finally(() => {
      this.#looking = null;
    });
    return this.#looking;
  }

  /** Gives name, placement and slices back. Never rejects: without the database they come back when the lease ends. */
  async leave(): Promise<void> {
    const { logger, store, identity } = this.#deps;
    this.#stopped = true;
    this.#cancelTimer();
    await this.#looking;
    this.#leaseUntilMs = 0;
    if (this.#isLost) return;
    await store.leaveEdge(identity).catch((thrown: unknown) =>
      logger.warn("the other edges could not be told that this one ends", {
        reason: thrown instanceof Error ? thrown.message : String(thrown),
      }),
    );
  }

  async #look(): Promise<void> {
    const { clock, leaseTtlMs, logger, store, identity } = this.#deps;
    const askedAtMs = clock.monotonicMs();
    try {
      if (askedAtMs < this.#renewAtMs) {
        this.#see(await store.edges());
        return;
      }
      const answer = await store.renewEdge(identity, { ttlMs: leaseTtlMs, sharing: this.#isSharing });
      this.#see(answer.members);
      if (!answer.mine) {
        if (!this.#isLost) logger.error("another process has taken this edge's name: give each edge its own name", {});
        this.#isLost = true;
        return;
      }
      const wasAway = clock.monotonicMs() >= this.#leaseUntilMs;
      this.#isLost = false;
      this.#leaseUntilMs = askedAtMs + leaseTtlMs;
      if (wasAway) this.#onReturn();
      this.#renewAtMs = askedAtMs + leaseTtlMs * RENEW_AFTER_SHARE;
      if (answer.placement !== this.#placement && answer.placement !== null)
        logger.info("this edge holds the placement lease", { lease_number: answer.placement });
      this.#placement = answer.placement;
    } catch (thrown) {
      logger.debug("the other edges cannot be heard of: the database is away", {
        reason: thrown instanceof Error ? thrown.message : String(thrown),
      });
    }
  }

  #see(members: readonly EdgeMember[]): void {
    const { logger } = this.#deps;
    const before = new Map(this.others.map((member) => [member.name, member]));
    this.#members = members;
    for (const { name, leaseLeftMs } of this.others) {
      const known = before.get(name);
      before.delete(name);
      const wasLive = known !== undefined && known.leaseLeftMs > 0;
      if (!wasLive && leaseLeftMs > 0) logger.info("another edge of this database is there", { other: name });
      // Its placement may be free.
      if (wasLive && leaseLeftMs <= 0) this.#ended(name, "the lease of another edge has ended");
    }
    for (const [name, { leaseLeftMs }] of before) if (leaseLeftMs > 0) this.#ended(name, "another edge has left");
  }

  #ended(other: string, what: string): void {
    this.#deps.logger.info(what, { other });
    this.#renewAtMs = 0;
  }

  #schedule(): void {
    if (this.#stopped) return;
    this.#cancelTimer = this.#deps.clock.after(LOOK_EVERY_MS, () => void this.look().then(() => this.#schedule()));
  }
}
