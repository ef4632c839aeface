import { describe, expect, it } from "vitest";
import { DEFAULT_ROUTING_SETTINGS } from "../../edge/routing/candidate.ts";
import { TextHash } from "../../edge/routing/hash.ts";
import { promptPrefix } from "../../edge/routing/prompt-prefix.ts";
import { replica } from "../support/dispatch-bench.ts";
import { PoolSimulation, seeded } from "../support/pool-simulation.ts";

const MACHINES = ["a/r", "b/r", "c/r"];
/** Blocks that a machine's cache holds. */
const CACHE_BLOCKS = 1_500;

/** What a machine has cached: the blocks of prompts it worked on, those used longest ago leaving first. */
class BlockCache {
  readonly #blocks = new Set<number>();

  /** How many leading blocks were there; all are there afterwards. */
  use(hashes: readonly number[]): number {
    let hit = 0;
    while (hit < hashes.length && this.#blocks.has(hashes[hit] ?? 0)) hit++;
    for (const hash of hashes.toReversed()) {
      this.#blocks.delete(hash);
      this.#blocks.add(hash);
    }
    for (const oldest of this.#blocks) {
      if (this.#blocks.size <= CACHE_BLOCKS) break;
      this.#blocks.delete(oldest);
    }
    return hit;
  }
}

interface Turn {
  readonly atMs: number;
  readonly conversation: number;
  readonly text: string;
}

/** Text that is the same for the same seed and unlike for others. */
const prose = (seed: string, length: number): string =>
  Array.from({ length: Math.ceil(length / 14) }, (_, at) => `${new TextHash().update(`${seed} ${at}`).value()}`)
    .join("")
    .slice(0, length);

/** Conversations of several turns, begun with one of many system prompts; `skew` is the share of the first of them. */
function conversations(count: number, skew: number, everyMs: number): readonly Turn[] {
  const random = seeded(11);
  const turns: Turn[] = [];
  for (let conversation = 0; conversation < count; conversation++) {
    const system = random() < skew ? 0 : 1 + Math.floor(random() * 60);
    let text = prose(`system ${system}`, 6_000);
    let atMs = conversation * everyMs;
    const length = 2 + Math.floor(random() * 5);
    for (let turn = 0; turn < length; turn++) {
      text += prose(`turn ${conversation} ${turn}`, 700);
      turns.push({ atMs, conversation, text });
      atMs += 4_000 + 8_000 * random();
    }
  }
  return turns;
}

function play(turns: readonly Turn[], prefixRouting: boolean) {
  const caches = new Map(MACHINES.map((key) => [key, new BlockCache()]));
  const simulation = new PoolSimulation(
    MACHINES.map((key) => replica(key, { slots: 4 })),
    { prefix: { ...DEFAULT_ROUTING_SETTINGS.prefix, enabled: prefixRouting } },
  );
  let blocks = 0;
  let hits = 0;
  const waits: number[] = [];
  const most = new Map<string, number>();
  for (const { atMs, conversation, text } of turns) {
    simulation.at(atMs, () => {
      const prefix = promptPrefix(text, 0, "project");
      simulation.admit({
        session: new TextHash().update(`session ${conversation}`).value(),
        prefix,
        inputTokens: Math.ceil(text.length / 4),
        // What is not cached is read at a thousand tokens a second, then a hundred tokens come.
        serviceMs: ({ target, queuedMs }) => {
          const hit = caches.get(target.key)?.use(prefix.hashes) ?? 0;
          blocks += prefix.hashes.length;
          hits += hit;
          waits.push(queuedMs);
          most.set(target.key, (most.get(target.key) ?? 0) + 1);
          return (text.length - hit * prefix.blockBytes) / 4 + 600;
        },
      });
    });
  }
  simulation.runUntil(10_000_000);
  waits.sort((left, right) => left - right);
  return {
    hitRate: hits / blocks,
    p99WaitMs: waits[Math.floor(waits.length * 0.99)] ?? 0,
    served: waits.length,
    shares: MACHINES.map((key) => (most.get(key) ?? 0) / waits.length),
  };
}

describe("routing by prefix", () => {
  it("finds more in the caches than sessions alone, in conversations of several turns", () => {
    const turns = conversations(400, 0, 700);
    const bySession = play(turns, false);
    const byPrefix = play(turns, true);
    expect(byPrefix.served).toBe(turns.length);
    expect(1 - byPrefix.hitRate).toBeLessThan(0.8 * (1 - bySession.hitRate));
  });

  it("makes nobody wait longer for it where most ask the same", () => {
    const turns = conversations(600, 0.9, 400);
    const bySession = play(turns, false);
    const byPrefix = play(turns, true);
    expect(byPrefix.p99WaitMs).toBeLessThanOrEqual(bySession.p99WaitMs);
    expect(Math.max(...byPrefix.shares)).toBeLessThan(0.5);
  });
});
