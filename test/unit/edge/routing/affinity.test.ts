import { describe, expect, it } from "vitest";
import { affine, NO_AFFINITY } from "../../../../edge/routing/affinity.ts";
import { DEFAULT_ROUTING_SETTINGS, type Candidate } from "../../../../edge/routing/candidate.ts";
import { TextHash } from "../../../../edge/routing/hash.ts";
import { choose } from "../../../../edge/routing/pick.ts";
import { PrefixIndex } from "../../../../edge/routing/prefix-index.ts";
import { promptPrefix } from "../../../../edge/routing/prompt-prefix.ts";
import { secondsOf, TYPICAL_REQUEST } from "../../../../edge/routing/score.ts";

const settings = DEFAULT_ROUTING_SETTINGS;
const candidate = (key: string, more: Partial<Candidate> = {}): Candidate => ({
  key,
  kind: "host",
  usable: true,
  slots: 8,
  ownInFlight: 0,
  othersInFlight: 0,
  waiting: 0,
  kvUse: null,
  ownWork: (more.ownInFlight ?? 0) * 512,
  workPerSecond: 200,
  warmth: 1,
  reportAgeMs: 0,
  capabilities: [],
  saes: [],
  lacks: [],
  contextLength: null,
  pace: null,
  weight: 1,
  priority: 0,
  busyUntilMs: 0,
  ejectedUntilMs: 0,
  probing: false,
  ...more,
});
const of = (work: number) => ({ ...TYPICAL_REQUEST, work });
const sessionOf = (name: string): number => new TextHash().update(name).value();
const placeOf = (session: number, all: readonly Candidate[]): string =>
  affine(all, all, { session, matched: new Map() }, settings)[0]?.key ?? "";

describe("the score", () => {
  it("is seconds until a machine would be done, by its measured speed", () => {
    expect(secondsOf(candidate("a", { ownWork: 400 }), of(100), settings)).toBe(2.5);
    expect(secondsOf(candidate("a", { ownWork: 400, workPerSecond: 100 }), of(100), settings)).toBe(5);
    expect(secondsOf(candidate("a", { ownWork: 400, weight: 2 }), of(100), settings)).toBe(1.25);
    expect(secondsOf(candidate("a", { ownWork: 400, warmth: 0.1 }), of(100), settings)).toBe(25);
  });

  it("grows without bound as the cells run out, and a stale report says nothing of them", () => {
    const at = (kvUse: number, more: Partial<Candidate> = {}) =>
      secondsOf(candidate("a", { kvUse, ...more }), of(0), settings);
    expect(at(0)).toBe(0);
    expect(at(0.5)).toBeCloseTo(0.15);
    expect(at(0.9)).toBeCloseTo(1.35);
    expect(at(1)).toBeGreaterThan(14);
    expect(at(1, { reportAgeMs: 3_001 })).toBe(0);
  });

  it("sends work to the faster machine, to a cold one less, and takes small differences for noise", () => {
    const chosen = (all: readonly Candidate[]) =>
      [0, 1].map(
        (turn) => choose(all, all, { scored: of(512), affinity: NO_AFFINITY }, { nowMs: 0, turn, settings })?.key,
      );
    expect(chosen([candidate("a"), candidate("b", { workPerSecond: 400 })])).toEqual(["b", "b"]);
    expect(chosen([candidate("a", { ownInFlight: 2 }), candidate("b", { warmth: 0.1 })])).toEqual(["a", "a"]);
    expect(chosen([candidate("a"), candidate("b", { workPerSecond: 210 })])).toEqual(["a", "b"]);
  });
});

describe("a session", () => {
  const four = ["a", "b", "c", "d"].map((key) => candidate(key));

  it("goes to the same machine each time, and sessions spread over all of them", () => {
    const places = Array.from({ length: 4_000 }, (_, at) => placeOf(sessionOf(`s${at}`), four));
    expect(placeOf(sessionOf("s7"), four.toReversed())).toBe(places[7]);
    for (const { key } of four) {
      const share = places.filter((place) => place === key).length / places.length;
      expect(share).toBeGreaterThan(0.2);
      expect(share).toBeLessThan(0.3);
    }
  });

  it("moves only to a machine that joins, and only from one that leaves", () => {
    const more = [...four, candidate("e")];
    const moved: string[] = [];
    for (let at = 0; at < 2_000; at++) {
      const before = placeOf(sessionOf(`s${at}`), four);
      const after = placeOf(sessionOf(`s${at}`), more);
      if (after !== before) moved.push(after);
    }
    expect(new Set(moved)).toEqual(new Set(["e"]));
    expect(moved.length / 2_000).toBeLessThan(0.25);
  });

  it("goes on to its next machine when its own has more than its share", () => {
    const session = sessionOf("s1");
    const own = placeOf(session, four);
    const loaded = (inFlight: number) => four.map((one) => (one.key === own ? { ...one, ownInFlight: inFlight } : one));
    expect(placeOf(session, loaded(3))).toBe(own);
    expect(placeOf(session, loaded(4))).not.toBe(own);
    // Where all are loaded, the share is larger.
    expect(
      placeOf(
        session,
        loaded(5).map((one) => ({ ...one, ownInFlight: 5 })),
      ),
    ).toBe(own);
  });
});

describe("the prefix index", () => {
  const text = (seed: string, length = 4_096) => seed.repeat(Math.ceil(length / seed.length)).slice(0, length);
  const prompt = (from: string, rest = "") => promptPrefix(from + rest, 0, "project");

  it("knows which machine has seen how much of a prompt", () => {
    const index = new PrefixIndex(settings.prefix);
    const shared = text("system prompt ");
    index.learn(prompt(shared, text("one ", 512)), "a", 0);
    index.learn(prompt(shared.slice(0, 2_048), text("two ", 3_000)), "b", 0);
    expect(index.match(prompt(shared, text("three ", 512)), 1)).toEqual(new Map([["a", 4_096]]));
    expect(index.match(prompt(shared), 1).get("a")).toBe(4_096);
    expect(index.match(prompt(text("other ")), 1).size).toBe(0);
  });

  it("acts on nothing shorter than its least match and share, and believes nothing for longer than its time", () => {
    const index = new PrefixIndex({ ...settings.prefix, minMatchBytes: 1_024, ttlMs: 1_000 });
    index.learn(prompt(text("x ", 1_024)), "a", 0);
    expect(index.match(prompt(text("x ", 1_024)), 0).size).toBe(1);
    expect(index.match(prompt(text("x ", 512)), 0).size).toBe(0);
    expect(index.match(prompt(text("x ", 1_024), text("y ", 1_200)), 0).size).toBe(0);
    expect(index.match(prompt(text("x ", 1_024)), 1_001).size).toBe(0);
  });

  it("never takes one project's prompts, or another steering, for the same", () => {
    const index = new PrefixIndex(settings.prefix);
    index.learn(promptPrefix(text("x "), 0, "project one"), "a", 0);
    expect(index.match(promptPrefix(text("x "), 0, "project two"), 0).size).toBe(0);
  });

  it("loses a machine's branches with the machine", () => {
    const index = new PrefixIndex(settings.prefix);
    index.learn(prompt(text("x ")), "a", 0);
    index.learn(prompt(text("x ")), "b", 0);
    expect(index.size).toBe(32);
    index.forget("a");
    expect(index.size).toBe(16);
    expect([...index.match(prompt(text("x ")), 0).keys()]).toEqual(["b"]);
    index.forget("b");
    expect(index.size).toBe(0);
  });

  it("forgets what a machine was to learn of a prompt on which it failed", () => {
    const index = new PrefixIndex(settings.prefix);
    const other = text("other ");
    for (const key of ["a", "b"]) index.learn(prompt(text("x ")), key, 0);
    index.learn(prompt(other), "a", 0);
    index.unlearn(prompt(text("x ")), "a");
    expect([...index.match(prompt(text("x ")), 0).keys()]).toEqual(["b"]);
    expect(index.match(prompt(other), 0).has("a")).toBe(true);
    index.unlearn(prompt(other), "a");
    index.unlearn(null, "a");
    expect(index.size).toBe(16);
  });

  it("stays within its bound whatever comes, and keeps what was used last", () => {
    const index = new PrefixIndex({ ...settings.prefix, maxNodes: 1_000 });
    for (let made = 0; made < 20_000; made++) {
      index.learn(prompt(text(`adversary ${made} `, 1_024)), "a", made);
      if (made % 100 === 0) index.learn(prompt(text("system ", 1_024)), "a", made);
      expect(index.size).toBeLessThanOrEqual(1_000);
    }
    expect(index.match(prompt(text("system ", 1_024)), 20_000).get("a")).toBe(1_024);
    expect(index.match(prompt(text("adversary 5 ", 1_024)), 20_000).size).toBe(0);
  });

  it("looks only at the beginning of a very long prompt", () => {
    const long = promptPrefix("x".repeat(10_000_000), 0, "");
    expect([long.hashes.length, long.bytes]).toEqual([256, 65_536]);
  });
});

describe("a prompt that machines know", () => {
  const matched = (...keys: string[]) => ({ session: null, matched: new Map(keys.map((key) => [key, 1_000])) });

  it("goes to the one that knows most of it", () => {
    const all = [candidate("a"), candidate("b"), candidate("c")];
    const some = {
      session: null,
      matched: new Map([
        ["a", 500],
        ["b", 900],
      ]),
    };
    expect(affine(all, all, some, settings).map(({ key }) => key)).toEqual(["b"]);
  });

  it("spreads to others when one machine has passed its share, and is shared by those that know it", () => {
    const all = [candidate("a", { ownInFlight: 5 }), candidate("b"), candidate("c")];
    expect(affine(all, all, matched("a"), settings)).toEqual([]);
    expect(affine(all, all, matched("a", "b"), settings).map(({ key }) => key)).toEqual(["b"]);
  });

  it("does not go to a machine too far above the least loaded, by both distances", () => {
    const big = (key: string, ownInFlight: number) => candidate(key, { slots: 200, ownInFlight });
    const guard = { ...settings, sessionLoadFactor: 100 };
    const knows = (a: number, b: number) => {
      const all = [big("a", a), big("b", b)];
      return affine(all, all, matched("a"), guard).length > 0;
    };
    expect([knows(32, 0), knows(33, 0), knows(140, 130), knows(180, 130)]).toEqual([true, false, true, false]);
  });
});
