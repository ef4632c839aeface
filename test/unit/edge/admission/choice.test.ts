import { describe, expect, it } from "vitest";
import { PoolAdmission, type AdmissionDecision } from "../../../../edge/admission/pool-admission.ts";
import {
  DEFAULT_ADMISSION_SETTINGS,
  settingsOfPool,
  type AdmissionSettings,
} from "../../../../edge/admission/settings.ts";
import type { AdmitRequest, ReplicaDigest, SettleRequest } from "../../../../edge/ports/coordinator.ts";
import { DEFAULT_POLICY } from "../../../../edge/routing/policy.ts";
import { promptPrefix } from "../../../../edge/routing/prompt-prefix.ts";
import { replica } from "../../../support/dispatch-bench.ts";

const WALL = 1_000_000;

function admission(replicas: readonly ReplicaDigest[], settings: Partial<AdmissionSettings> = {}) {
  const pool = new PoolAdmission("m", { ...DEFAULT_ADMISSION_SETTINGS, ...settings });
  pool.handle({ kind: "update", digest: { pool: "m", replicas }, wallNowMs: WALL }, 0);
  const admit = (requestId: string, nowMs = 0, more: Partial<AdmitRequest> = {}) =>
    pool.handle(
      {
        kind: "admit",
        request: {
          pool: "m",
          requestId,
          attempt: 1,
          project: "p",
          band: "default",
          arrivedAtMs: WALL + nowMs,
          capability: "chat",
          saeIds: [],
          needsSomeSae: false,
          excludedReplicas: [],
          bodyBytes: 10,
          returning: null,
          inputTokens: 100,
          outputTokens: 100,
          session: null,
          prefix: null,
          ...more,
        },
        wallNowMs: WALL + nowMs,
      },
      nowMs,
    );
  const settle = (claimId: string, nowMs: number, more: Partial<SettleRequest> = {}) =>
    pool.handle({ kind: "settle", claimId, result: "answered", ...more }, nowMs);
  return { pool, admit, settle };
}

const granted = (decisions: readonly AdmissionDecision[]) =>
  decisions.flatMap((decision) => (decision.kind === "granted" ? [decision] : []));
const ids = (decisions: readonly AdmissionDecision[]) => granted(decisions).map(({ requestId }) => requestId);

describe("inside a project", () => {
  it("whoever was promised a first token and is due first goes first, then those without by their age", () => {
    const { admit, settle } = admission([replica("a/r", { slots: 1 })]);
    admit("running");
    admit("plain-1", 10);
    admit("slow", 20, { sloTtftMs: 9_000 });
    admit("plain-2", 30);
    admit("quick-late", 5_000, { sloTtftMs: 500 });
    admit("quick-later", 5_001, { sloTtftMs: 500 });
    const order: string[] = [];
    let last = "running";
    for (let turn = 0; turn < 5; turn++) {
      const [next] = ids(settle(`${last}.1`, 6_000 + turn));
      if (next === undefined) break;
      order.push(next);
      last = next;
    }
    expect(order).toEqual(["quick-late", "quick-later", "slow", "plain-1", "plain-2"]);
  });

  it("a promise of one project is no claim on another's turn", () => {
    const { admit, settle } = admission([replica("a/r", { slots: 1 })]);
    admit("running", 0, { project: "one" });
    admit("urgent", 10, { project: "one", sloTtftMs: 1 });
    admit("plain", 20, { project: "two" });
    expect(ids(settle("running.1", 30))).toEqual(["plain"]);
  });
});

describe("a hedge", () => {
  const hedge = { hedge: true, attempt: 2, excludedReplicas: ["a/r"] } as const;
  const two = [replica("a/r", { slots: 4 }), replica("b/r", { slots: 4 })];

  it("gets another machine at once, as a claim of its own", () => {
    const { admit, settle, pool } = admission(two);
    admit("r1");
    expect(granted(admit("r1", 50, hedge))).toMatchObject([{ claimId: "r1.2", target: { key: "b/r" } }]);
    settle("r1.1", 60);
    expect(pool.stats(60).inFlight).toBe(1);
    settle("r1.2", 60, { result: "cancelled" });
    expect(pool.stats(60).inFlight).toBe(0);
  });

  it("is refused and never waits when there is no other, when somebody waits, or from a third of the load on", () => {
    const alone = admission([replica("a/r", { slots: 9 })]);
    alone.admit("r1");
    expect(alone.admit("r1", 1, hedge)).toMatchObject([{ kind: "refused", requestId: "r1" }]);
    const { admit, pool } = admission(two);
    for (const id of ["r1", "r2", "r3"]) admit(id);
    expect(admit("r1", 1, hedge)).toMatchObject([{ kind: "refused" }]);
    expect(pool.stats(1)).toMatchObject({ inFlight: 3, queueDepthByBand: { default: 0 } });
    const long = { context: { expectedTokens: 600, leastPromptTokens: 0 } };
    const waiting = admission([
      ...["a/r", "b/r"].map((key) => replica(key, { slots: 40, contextLength: 512 })),
      replica("c/r", { slots: 1, contextLength: 4_096 }),
    ]);
    waiting.admit("r1");
    waiting.admit("long-1", 0, long);
    expect(waiting.admit("r1", 1, hedge).map(({ kind }) => kind)).toEqual(["granted"]);
    expect(waiting.admit("long-2", 1, long)).toEqual([]);
    expect(waiting.admit("r1", 2, { ...hedge, attempt: 3 }).map(({ kind }) => kind)).toEqual(["refused"]);
  });
});

describe("context", () => {
  const two = [replica("a/r", { slots: 9, contextLength: 512 }), replica("b/r", { slots: 1, contextLength: 4_096 })];
  const need = (expectedTokens: number, leastPromptTokens = 0) => ({ context: { expectedTokens, leastPromptTokens } });

  it("keeps long requests to the replicas that can hold them, for which they wait", () => {
    const { admit, settle } = admission(two);
    expect(granted(admit("r1", 0, need(600)))).toMatchObject([{ target: { key: "b/r" } }]);
    expect(admit("r2", 0, need(700))).toEqual([]);
    expect(granted(admit("r3", 0, need(500)))).toMatchObject([{ target: { key: "a/r" } }]);
    expect(granted(settle("r1.1", 5))).toMatchObject([{ requestId: "r2", target: { key: "b/r" } }]);
  });

  it("refuses at once what surely fits nowhere, and lets the engine judge what may", () => {
    const { admit } = admission(two);
    expect(admit("r1", 0, need(9_000, 4_097))).toEqual([
      { kind: "context_exceeded", requestId: "r1", contextLength: 4_096 },
    ]);
    expect(granted(admit("r2", 0, need(9_000, 4_096)))).toMatchObject([{ target: { key: "b/r" } }]);
    const unknown = admission([replica("a/r", { contextLength: null })]);
    expect(granted(unknown.admit("r1", 0, need(9_000, 8_000)))).toHaveLength(1);
    const none = admission([replica("a/r", { ready: false, contextLength: 512 })]);
    expect(none.admit("r1", 0, need(9_000, 8_000))).toEqual([]);
  });
});

describe("a pool's policy", () => {
  it("is its own where it has one", () => {
    const own = { ...DEFAULT_POLICY, affinity: false };
    const settings = { ...DEFAULT_ADMISSION_SETTINGS, policies: { m: own } };
    expect(settingsOfPool(settings, "m").policy).toBe(own);
    expect(settingsOfPool(settings, "toString").policy).toBe(DEFAULT_POLICY);
  });

  it("leaves prompts and sessions aside where affinity is off, and the reason says what decided", () => {
    const prefix = promptPrefix("once upon a time ".repeat(100), 0, "p");
    const by = (affinity: boolean, more: Partial<AdmitRequest>) => {
      const { admit } = admission([replica("a/r"), replica("b/r")], { policy: { ...DEFAULT_POLICY, affinity } });
      admit("r1", 0, more);
      return granted(admit("r2", 0, more)).map(({ target, why }) => [target.key, why.by]);
    };
    expect(by(true, { prefix })).toEqual([["a/r", "prefix"]]);
    expect(by(true, { session: 3 })[0]?.[1]).toBe("session");
    expect(by(false, { prefix, session: 3 })).toEqual([["b/r", "score"]]);
  });

  it("chooses less a machine whose streams lately were later than was promised", () => {
    const slo = { ttftMs: 200, tpotMs: null };
    const place = (policy: AdmissionSettings["policy"]) => {
      const { admit, settle } = admission([replica("a/r"), replica("b/r")], { policy });
      for (let turn = 0; turn < 12; turn++) {
        const [one] = granted(admit(`w${turn}`));
        settle(`w${turn}.1`, 0, { pace: { ttftMs: one?.target.key === "a/r" ? 30_000 : 100, tpotMs: null } });
      }
      return [13, 14].flatMap((turn) => granted(admit(`r${turn}`)).map(({ target }) => target.key));
    };
    expect(place({ ...DEFAULT_POLICY, slo })).toEqual(["b/r", "b/r"]);
    expect(place(DEFAULT_POLICY)).toEqual(["a/r", "b/r"]);
  });

  it("does not send a prompt back to a machine that failed on it", () => {
    const prefix = promptPrefix("once upon a time ".repeat(100), 0, "p");
    const { admit, settle } = admission([replica("a/r"), replica("b/r")]);
    const [first] = granted(admit("r1", 0, { prefix }));
    settle("r1.1", 0, { result: "failed" });
    const [second] = granted(admit("r2", 0, { prefix }));
    expect(second?.why.by).toBe("score");
    expect(second?.why.candidates.map(({ matchedBytes }) => matchedBytes)).toEqual([0, 0]);
    settle("r2.1", 0);
    const [third] = granted(admit("r3", 0, { prefix }));
    expect([third?.target.key, third?.why.by]).toEqual([second?.target.key, "prefix"]);
    expect(first?.target.key).not.toBe(second?.target.key);
  });

  it("tells the terms of the score with the reason", () => {
    const { admit } = admission([replica("a/r")]);
    const [{ why } = { why: null }] = granted(admit("r1"));
    expect(why?.candidates).toMatchObject([{ replica: "a/r", terms: { kv: 0, slo: 0 } }]);
    const [first] = why?.candidates ?? [];
    expect(first?.seconds).toBe(first?.terms.load);
  });
});
