import { appendFileSync, mkdirSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import path from "node:path";
import { afterEach, beforeEach, describe, expect, it } from "vitest";
import { EndedStore } from "../../../../backend/host/ended-store.ts";
import { createLogger } from "../../../../shared/logging/logger.ts";
import type { EndedRequest } from "../../../../shared/protocol/report.ts";
import { ManualClock } from "../../../support/manual-clock.ts";

const HOUR_MS = 3_600_000;
const ANY = (): boolean => true;
const wanted = (edge: string): boolean => edge === "edge-1";

const entry = (number: number, over: Partial<EndedRequest> = {}): EndedRequest => ({
  request_id: `req_${number}`,
  attempt: 1,
  edge: "edge-1",
  replica: "sim",
  epoch: 7,
  ended_at: 10 * HOUR_MS + number,
  computed_prompt: 10,
  cached_prompt: 2,
  computed_completion: number,
  outcome: "completed",
  exactness: "exact",
  ...over,
});

const ids = (of: EndedStore): string[] => of.waiting(ANY, 100).map(({ request_id }) => request_id);

describe("the store of ended requests", () => {
  let folder: string;
  let file: string;
  let store: EndedStore | null;
  let log: string[];

  beforeEach(() => {
    folder = mkdtempSync(path.join(tmpdir(), "steerage-ended-"));
    file = path.join(folder, "data", "ended.ndjson");
    store = null;
    log = [];
  });
  afterEach(() => {
    store?.close();
    rmSync(folder, { recursive: true });
  });

  const open = (compactAfterLines?: number): EndedStore => {
    store?.close();
    const logger = createLogger({
      level: "info",
      format: "json",
      clock: new ManualClock(),
      write: (line) => log.push(line),
    });
    store = new EndedStore({ file, logger, ...(compactAfterLines === undefined ? {} : { compactAfterLines }) });
    return store;
  };

  it("lets an edge acknowledge only what it is told", () => {
    const both = open();
    both.add(entry(1));
    both.add(entry(2, { edge: "edge-2" }));
    both.acknowledge([entry(1), entry(2)], wanted);
    expect(ids(both)).toEqual(["req_2"]);
    expect(ids(open())).toEqual(["req_2"]);
  });

  it("goes on with the long file when a short one cannot be written", () => {
    const long = open(2);
    mkdirSync(`${file}.new`);
    for (const number of [1, 2, 3]) long.add(entry(number));
    expect(() => long.acknowledge([entry(1)])).not.toThrow();
    expect(log.join("")).toContain("cannot be written anew");
    long.add(entry(4));
    expect(ids(open(2))).toEqual(["req_2", "req_3", "req_4"]);
  });

  it("keeps entries until they are acknowledged, oldest first, over a restart", () => {
    const first = open();
    for (const number of [1, 2, 3]) first.add(entry(number));
    first.acknowledge([{ request_id: "req_2", attempt: 1 }]);
    expect(ids(first)).toEqual(["req_1", "req_3"]);
    const second = open();
    expect(second.waiting(ANY, 100)).toEqual([entry(1), entry(3)]);
    expect(second.waiting(ANY, 1)).toEqual([entry(1)]);
  });

  it("has an entry on disk when add returns", () => {
    open().add(entry(1));
    expect(readFileSync(file, "utf8")).toContain("req_1");
  });

  it("takes an entry once", () => {
    const opened = open();
    expect([opened.add(entry(1)), opened.add(entry(1))]).toEqual([true, false]);
    expect(opened.counters(ANY)).toMatchObject([{ requests: 1 }]);
  });

  it("sums by edge, epoch and hour, and keeps the sums of acknowledged entries", () => {
    const first = open();
    first.add(entry(1));
    first.add(entry(2, { edge: "edge-2" }));
    first.add(entry(3, { epoch: 8 }));
    first.add(entry(4, { ended_at: 11 * HOUR_MS }));
    first.add(entry(5));
    first.acknowledge([{ request_id: "req_1", attempt: 1 }]);
    const sums = [
      {
        edge: "edge-1",
        epoch: 7,
        hour: 10 * HOUR_MS,
        requests: 2,
        computed_prompt: 20,
        cached_prompt: 4,
        computed_completion: 6,
      },
      {
        edge: "edge-1",
        epoch: 8,
        hour: 10 * HOUR_MS,
        requests: 1,
        computed_prompt: 10,
        cached_prompt: 2,
        computed_completion: 3,
      },
      {
        edge: "edge-1",
        epoch: 7,
        hour: 11 * HOUR_MS,
        requests: 1,
        computed_prompt: 10,
        cached_prompt: 2,
        computed_completion: 4,
      },
    ];
    expect(first.counters(wanted)).toEqual(sums);
    expect(open().counters(wanted)).toEqual(sums);
  });

  it("drops a last line that was cut short and goes on in a new one", () => {
    open().add(entry(1));
    appendFileSync(file, '{"ended":{"request_id":"req_2","é');
    const second = open();
    expect(ids(second)).toEqual(["req_1"]);
    second.add(entry(3));
    expect(ids(open())).toEqual(["req_1", "req_3"]);
    expect(log.join()).toContain("cut short");
  });

  it("skips a line it cannot read, and says so", () => {
    open().add(entry(1));
    store?.close();
    store = null;
    writeFileSync(file, `rubbish\n{"ended":{}}\n${readFileSync(file, "utf8")}`);
    expect(ids(open())).toEqual(["req_1"]);
    expect(log).toHaveLength(2);
  });

  it("writes the file anew when it has grown, losing neither waiting entries nor sums", () => {
    const first = open(20);
    for (let number = 0; number < 30; number++) {
      first.add(entry(number));
      if (number > 0) first.acknowledge([{ request_id: `req_${number}`, attempt: 1 }]);
    }
    expect(readFileSync(file, "utf8").split("\n").length).toBeLessThan(25);
    const sums = first.counters(ANY);
    expect(sums).toMatchObject([{ requests: 30, computed_completion: (29 * 30) / 2 }]);
    const second = open();
    expect([ids(second), second.counters(ANY)]).toEqual([["req_0"], sums]);
  });
});
