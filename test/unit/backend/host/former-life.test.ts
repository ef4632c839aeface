import { existsSync, mkdirSync, readFileSync, writeFileSync } from "node:fs";
import path from "node:path";
import { afterEach, beforeEach, describe, expect, it } from "vitest";
import { AskedAttempts } from "../../../../backend/host/asked-attempts.ts";
import { FormerLife, noteLife } from "../../../../backend/host/former-life.ts";
import { keepTwoRunFolders } from "../../../../backend/host/run-folder.ts";
import type { EndedRequest } from "../../../../shared/protocol/report.ts";
import { boardFile } from "../../../support/account-board-file.ts";
import { ManualClock } from "../../../support/manual-clock.ts";
import { temporaryFolder } from "../../../support/temporary-folder.ts";

const FORMER_EPOCH = 5;

describe("the life before this one", () => {
  let clock: ManualClock;
  let root: ReturnType<typeof temporaryFolder>;
  let folder: string;
  let recorded: EndedRequest[];

  beforeEach(async () => {
    clock = new ManualClock();
    root = temporaryFolder();
    folder = path.join(root.folder, "steerage-abc123");
    mkdirSync(folder);
    recorded = [];
    await noteLife(folder, { epoch: FORMER_EPOCH, replicas: ["small", "large"] });
  });
  afterEach(() => root.remove());

  const board = (records: Parameters<typeof boardFile>[0], unrecorded = 0): void =>
    writeFileSync(path.join(folder, "e1-1.sock.accounts"), boardFile(records, unrecorded));

  const asked = async (): Promise<AskedAttempts> =>
    new AskedAttempts({
      epoch: 9,
      replicas: new Map(),
      ended: {
        has: (requestId) => recorded.some(({ request_id }) => request_id === requestId),
        add: (entry) => recorded.push(entry) > 0,
      },
      front: { isOutOfTheQuestion: () => false },
      former: await FormerLife.open(folder, clock.nowMs()),
      clock,
    });
  const ask = { request_id: "req_a", attempt: 1, replica: "large", epoch: FORMER_EPOCH };
  const closed = {
    label: "req_a.1",
    state: 2,
    promptTokens: 10,
    keepTokens: 4,
    computedPrompt: 6,
    computedCompletion: 3,
  };

  it("tells what its engines had computed, under its own epoch, once", async () => {
    board([closed]);
    const attempts = await asked();
    attempts.tell("edge-1", ask);
    attempts.tell("edge-1", ask);
    expect(recorded).toEqual([
      {
        request_id: "req_a",
        attempt: 1,
        edge: "edge-1",
        replica: "large",
        epoch: FORMER_EPOCH,
        ended_at: clock.nowMs(),
        computed_prompt: 6,
        cached_prompt: 4,
        computed_completion: 3,
        outcome: "failed",
        exactness: "exact",
      },
    ]);
  });

  it("waits until its engines are gone for what was still running, and for what no engine began", async () => {
    board([{ ...closed, state: 1 }]);
    const attempts = await asked();
    const never = { ...ask, request_id: "req_never" };
    attempts.tell("edge-1", ask);
    attempts.tell("edge-1", never);
    expect(recorded).toEqual([]);
    clock.advance(4_000);
    attempts.tell("edge-1", ask);
    attempts.tell("edge-1", never);
    expect(recorded).toMatchObject([
      { request_id: "req_a", computed_completion: 3 },
      { request_id: "req_never", computed_prompt: 0, computed_completion: 0, exactness: "exact" },
    ]);
  });

  it.each([
    ["an engine without a board", () => undefined],
    ["an incomplete board", () => board([], 1)],
  ])("knows nothing of a request behind %s", async (_what, make) => {
    make();
    const attempts = await asked();
    clock.advance(60_000);
    attempts.tell("edge-1", ask);
    attempts.tell("edge-1", { ...ask, epoch: 4 });
    attempts.tell("edge-1", { ...ask, replica: "unknown" });
    expect(recorded).toEqual([]);
  });

  it("is none where the folder is no run folder or its note cannot be read", async () => {
    expect(await FormerLife.open("/", 0)).toBeNull();
    expect(await FormerLife.open(path.join(root.folder, "steerage-gone00"), 0)).toBeNull();
    writeFileSync(path.join(folder, "life.json"), "{");
    expect(await FormerLife.open(folder, 0)).toBeNull();
  });

  it("leaves its folder until it was answered for, and older ones go at once", async () => {
    const note = path.join(root.folder, "run-folder");
    const folders = ["steerage-bbbbbb", "steerage-cccccc"].map((name) => path.join(root.folder, name));
    for (const made of folders) mkdirSync(made);
    const [second = "", third = ""] = folders;
    expect(await keepTwoRunFolders(note, folder)).toBeNull();
    expect(await keepTwoRunFolders(note, second)).toBe(folder);
    expect(await keepTwoRunFolders(note, third)).toBe(second);
    expect([folder, second, third].map((made) => existsSync(made))).toEqual([false, true, true]);
    expect(readFileSync(note, "utf8").split("\n")).toEqual([second, third]);
  });

  it("goes when nobody will be told any more", async () => {
    const attempts = await asked();
    await attempts.close();
    expect(existsSync(folder)).toBe(false);
  });
});
