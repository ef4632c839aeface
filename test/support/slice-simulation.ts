import { EdgeSlices, type SliceNeed } from "../../edge/limits/edge-slices.ts";
import { grantBudget, grantRate, type RatePool } from "../../edge/limits/slice-grants.ts";
import type { BudgetAsk, RateAsk, SliceAnswer } from "../../edge/ports/slice-store.ts";

export interface SimulationSettings {
  readonly budgetNanoUsd: bigint;
  readonly requestsPerMinute: number;
  readonly tokensPerMinute: number;
}

type Asks = { readonly rates: readonly RateAsk[]; readonly budgets: readonly BudgetAsk[] };
type Granted = Extract<SliceAnswer, { kind: "granted" }>;

interface Running {
  readonly requestId: string;
  readonly boundNanoUsd: bigint;
  readonly tokens: number;
}

/** An edge of the simulation: its slices, what runs on it, and what it settled that the database does not have. */
export class SimulatedEdge {
  readonly name: string;
  readonly slices = new EdgeSlices();
  readonly running: Running[] = [];
  readonly unflushed: { readonly requestId: string; readonly costNanoUsd: bigint }[] = [];
  isDead = false;

  constructor(name: string) {
    this.name = name;
    this.slices.beginSharing();
  }

  /** What it may still add to what is spent. */
  get exposedNanoUsd(): bigint {
    const running = this.running.reduce((sum, { boundNanoUsd }) => sum + boundNanoUsd, 0n);
    return this.unflushed.reduce((sum, { costNanoUsd }) => sum + costNanoUsd, running);
  }
}

/** One database and its edges, without any clock or I/O: grants are the product's own decisions. */
export class SliceSimulation {
  readonly settings: SimulationSettings;
  readonly edges: SimulatedEdge[];
  readonly admittedAtMs: number[] = [];
  readonly tokensAt: { readonly atMs: number; readonly tokens: number }[] = [];
  nowMs = 1_000;
  spentNanoUsd = 0n;
  readonly #held = new Map<string, bigint>();
  readonly #pools = new Map<string, RatePool>();
  #starvedSinceMs = 0;
  #number = 0;

  constructor(edges: number, settings: SimulationSettings) {
    this.settings = settings;
    this.edges = Array.from({ length: edges }, (_, place) => new SimulatedEdge(`edge-${place}`));
  }

  get live(): readonly SimulatedEdge[] {
    return this.edges.filter(({ isDead }) => !isDead);
  }

  /** Everything that counts or may come to count. */
  get exposedNanoUsd(): bigint {
    return this.edges.reduce((sum, edge) => sum + edge.exposedNanoUsd, this.spentNanoUsd);
  }

  /** One request; when its slice is used up it asks once. Whether it was let in. */
  request(edge: SimulatedEdge, boundNanoUsd: bigint, tokens: number): boolean {
    const requestId = `r${++this.#number}`;
    const needs = this.#needs(boundNanoUsd, tokens);
    let missing = edge.slices.take(requestId, needs, this.nowMs);
    if (missing.length > 0) {
      edge.slices.await(needs, this.nowMs);
      this.renew(edge);
      missing = edge.slices.take(requestId, needs, this.nowMs);
    }
    if (missing.length > 0) return false;
    this.admittedAtMs.push(this.nowMs);
    this.tokensAt.push({ atMs: this.nowMs, tokens });
    edge.running.push({ requestId, boundNanoUsd, tokens });
    return true;
  }

  /** Ends the oldest request of an edge with a share of its bound. */
  settle(edge: SimulatedEdge, percent: bigint): void {
    const ended = edge.running.shift();
    if (ended === undefined) return;
    const costNanoUsd = (ended.boundNanoUsd * percent) / 100n;
    edge.slices.settle(ended.requestId, { totalTokens: ended.tokens, costNanoUsd, uncounted: false });
    if (costNanoUsd > 0n) edge.unflushed.push({ requestId: ended.requestId, costNanoUsd });
  }

  /** Rows reach the database; `told` is false where the edge hears of it later, with `tell`. */
  flush(edge: SimulatedEdge): () => void {
    const rows = edge.unflushed.splice(0);
    for (const { costNanoUsd } of rows) this.spentNanoUsd += costNanoUsd;
    return () => {
      for (const { requestId } of rows) edge.slices.recorded(requestId);
    };
  }

  renew(edge: SimulatedEdge): void {
    const { asks, answer } = this.ask(edge);
    edge.slices.apply(asks, answer, this.nowMs);
  }

  /** The database's part of a renewal; the answer may be lost, or come late. */
  ask(edge: SimulatedEdge): { readonly asks: Asks; readonly answer: Granted } {
    const asks = edge.slices.asks(this.nowMs);
    const how = { nowMs: this.nowMs, edges: this.live.length };
    const rates = asks.rates.map((ask) => {
      const { pool, grant } = grantRate(this.#pools.get(`${ask.resource} ${ask.scope}`) ?? null, ask, how);
      this.#pools.set(`${ask.resource} ${ask.scope}`, pool);
      return grant;
    });
    const budgets = asks.budgets.map((ask) => {
      const state = {
        spentNanoUsd: this.spentNanoUsd,
        othersNanoUsd: [...this.#held].reduce((sum, [name, held]) => (name === edge.name ? sum : sum + held), 0n),
        starvedSinceMs: this.#starvedSinceMs,
      };
      const { starvedSinceMs, grant } = grantBudget(state, ask, how);
      this.#starvedSinceMs = starvedSinceMs;
      this.#held.set(edge.name, BigInt(grant.heldNanoUsd));
      return grant;
    });
    return { asks, answer: { kind: "granted", waitsFor: null, edges: how.edges, rates, budgets } };
  }

  /** An edge that waits in vain goes on waiting with nothing in its hands. */
  slicesReturn(edge: SimulatedEdge): void {
    edge.slices.endSharing();
    this.renew(edge);
  }

  heldNanoUsd(edge: SimulatedEdge): bigint {
    return this.#held.get(edge.name) ?? 0n;
  }

  /** The most requests, or tokens, that were let in within any window of this length. */
  mostWithin(windowMs: number, amounts: readonly { readonly atMs: number; readonly tokens: number }[]): number {
    let most = 0;
    let sum = 0;
    let from = 0;
    for (const { atMs, tokens } of amounts) {
      sum += tokens;
      while ((amounts[from]?.atMs ?? atMs) <= atMs - windowMs) sum -= amounts[from++]?.tokens ?? 0;
      most = Math.max(most, sum);
    }
    return most;
  }

  #needs(boundNanoUsd: bigint, tokens: number): SliceNeed[] {
    const { budgetNanoUsd, requestsPerMinute, tokensPerMinute } = this.settings;
    const scope = "key:k";
    return [
      { kind: "rate", scope, resource: "requests", perMinute: requestsPerMinute, amount: 1, needed: 1 },
      { kind: "rate", scope, resource: "tokens", perMinute: tokensPerMinute, amount: tokens, needed: tokens },
      {
        kind: "budget",
        scope,
        period: "total",
        path: ["a", "p", "k"],
        startMs: 0,
        endMs: null,
        limitNanoUsd: budgetNanoUsd,
        amountNanoUsd: boundNanoUsd,
      },
    ];
  }
}
