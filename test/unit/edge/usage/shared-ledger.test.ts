import { beforeEach, describe, expect, it } from "vitest";
import type { EdgeMember } from "../../../../edge/ports/edge-store.ts";
import type { ForeignReport, OpenRequest } from "../../../../edge/ports/open-request-store.ts";
import { SharedLedger } from "../../../../edge/usage/shared-ledger.ts";
import type { RequestAccount } from "../../../../edge/usage/request-account.ts";
import type { HourCounter } from "../../../../shared/protocol/report.ts";
import { ManualClock } from "../../../support/manual-clock.ts";
import { keptLogger } from "../../../support/silent-logger.ts";
import { endedRequest, opened, START_MS } from "../../../support/usage-rows.ts";

const member = (name: string, leaseLeftMs: number): EdgeMember => ({ name, run: name, leaseLeftMs, sharing: true });
const counter = (edge?: string): HourCounter => ({
  ...(edge === undefined ? {} : { edge }),
  epoch: 7,
  hour: START_MS,
  requests: 1,
  computed_prompt: 1,
  cached_prompt: 1,
  computed_completion: 1,
});

function account(requestId: string, attempts = 1): RequestAccount {
  const started = Array.from({ length: attempts }, (_, place) => ({
    requestId,
    attempt: place + 1,
    backend: "gpu-1",
    replica: "r1",
    epoch: 7,
  }));
  return {
    opened: opened(requestId),
    started: new Map(started.map((attempt) => [attempt.attempt, attempt])),
    reports: new Map(),
    settled: null,
    waitedAtMs: null,
  };
}

describe("the ledger of an edge among others", () => {
  let clock: ManualClock;
  let others: EdgeMember[];
  let open: RequestAccount[];
  let away: boolean;
  let noted: { open: string[]; closed: string[] }[];
  let adopted: ForeignReport[];
  let abandonedAsked: number;
  let own: { ended: string[]; counters: number }[];
  let ledger: SharedLedger;
  beforeEach(async () => {
    clock = new ManualClock(START_MS);
    others = [];
    open = [];
    away = false;
    noted = [];
    adopted = [];
    own = [];
    abandonedAsked = 0;
    const answered = <T>(value: T): Promise<T> => (away ? Promise.reject(new Error("away")) : Promise.resolve(value));
    ledger = new SharedLedger({
      clock,
      logger: keptLogger().logger,
      edge: "me",
      others: () => others,
      reservedNanoUsd: () => 5n,
      ledger: {
        acceptReport: (_host, ended, counters) => {
          own.push({ ended: ended.map((entry) => entry.request_id), counters: counters.length });
          return ended.map(({ request_id, attempt }) => ({ request_id, attempt }));
        },
        askedOf: () => [],
        openAccounts: () => open,
      },
      store: {
        openRequestIds: () => answered([]),
        noteOpenRequests: (_edge, list: readonly OpenRequest[], closed) => {
          if (!away) noted.push({ open: list.map((one) => one.opened.requestId), closed: [...closed] });
          return answered(undefined);
        },
        adopt: (report) => {
          adopted.push(report);
          return answered(report.ended.map(({ request_id, attempt }) => ({ request_id, attempt })));
        },
        settleAbandoned: () => {
          abandonedAsked++;
          return answered(0);
        },
      },
    });
    await ledger.start();
  });

  const ids = (acknowledged: readonly { request_id: string }[]) => acknowledged.map((entry) => entry.request_id);

  it("notes nothing while it is alone", async () => {
    open = [account("r1")];
    await ledger.note();
    expect(noted).toEqual([]);
  });

  it("notes what runs and each further attempt while others are there, and takes away what has ended", async () => {
    others = [member("b", 9_000)];
    open = [account("r1"), account("r2")];
    await ledger.note();
    await ledger.note();
    open = [account("r1", 2)];
    await ledger.note();
    others = [];
    await ledger.note();
    expect(noted).toEqual([
      { open: ["r1", "r2"], closed: [] },
      { open: ["r1"], closed: ["r2"] },
      { open: [], closed: ["r1"] },
    ]);
  });

  it("notes again what the database could not take", async () => {
    others = [member("b", 9_000)];
    open = [account("r1")];
    away = true;
    await ledger.note();
    away = false;
    await ledger.note();
    expect(noted).toEqual([{ open: ["r1"], closed: [] }]);
  });

  it("leaves a live edge's reports to that one, unacknowledged", async () => {
    others = [member("b", 9_000)];
    const ended = [endedRequest("mine", { edge: "me" }), endedRequest("theirs", { edge: "b" })];
    expect(ids(await ledger.acceptReport("gpu-1", ended, [counter("b"), counter("me"), counter()]))).toEqual(["mine"]);
    expect(own).toEqual([{ ended: ["mine"], counters: 2 }]);
    expect(adopted).toEqual([]);
    expect(ledger.dead).toEqual([]);
  });

  it("settles a dead edge's, counters with them, and asks the database seldom about the same", async () => {
    others = [member("b", 0)];
    expect(ledger.dead).toEqual(["b"]);
    const ended = [endedRequest("theirs", { edge: "b" })];
    expect(ids(await ledger.acceptReport("gpu-1", ended, [counter("b")]))).toEqual(["theirs"]);
    expect(adopted).toMatchObject([{ host: "gpu-1", ended, counters: [{ edge: "b" }] }]);
    await ledger.acceptReport("gpu-1", ended, []);
    expect(adopted).toHaveLength(1);
    clock.advance(15_000);
    await ledger.acceptReport("gpu-1", ended, []);
    expect(adopted).toHaveLength(2);
  });

  it("acknowledges its own and nothing else while the database is away, and asks again at once", async () => {
    others = [member("b", 0)];
    away = true;
    const ended = [endedRequest("mine", { edge: "me" }), endedRequest("theirs", { edge: "b" })];
    expect(ids(await ledger.acceptReport("gpu-1", ended, []))).toEqual(["mine"]);
    away = false;
    expect(ids(await ledger.acceptReport("gpu-1", ended, []))).toEqual(["mine", "theirs"]);
  });

  it("looks for what no machine will tell of only while an edge is dead", async () => {
    others = [member("b", 9_000)];
    clock.advance(10_000);
    await ledger.note();
    expect(abandonedAsked).toBe(0);
    others = [member("b", 0)];
    await ledger.note();
    await ledger.note();
    expect(abandonedAsked).toBe(1);
  });

  it("notes at its end what is still open, and leaves no timer", async () => {
    others = [member("b", 9_000)];
    open = [account("r1")];
    await ledger.close();
    expect(noted).toEqual([{ open: ["r1"], closed: [] }]);
    expect(clock.pendingTimers).toBe(0);
  });
});
