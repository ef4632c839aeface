import type * as FileSystem from "node:fs";
import { mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import path from "node:path";
import { expect, it, vi } from "vitest";
import { EndedStore } from "../../../../backend/host/ended-store.ts";
import type { EndedRequest } from "../../../../shared/protocol/report.ts";
import { keptLogger } from "../../../support/silent-logger.ts";

const MOST_AT_ONCE = 10;

// A system call may write less than it was given, as on a disk that is nearly full.
vi.mock("node:fs", async (load) => {
  const fs = await load<typeof FileSystem>();
  const writeSync = (descriptor: number, data: string | Uint8Array, offset = 0): number => {
    const bytes = typeof data === "string" ? Buffer.from(data) : data;
    return fs.writeSync(descriptor, bytes, offset, Math.min(MOST_AT_ONCE, bytes.length - offset));
  };
  return { ...fs, writeSync };
});

const entry = (number: number): EndedRequest => ({
  request_id: `req_${number}`,
  attempt: 1,
  edge: "edge-1",
  replica: "sim",
  epoch: 7,
  ended_at: number,
  computed_prompt: 10,
  cached_prompt: 2,
  computed_completion: number,
  outcome: "completed",
  exactness: "exact",
});

it("the store of ended requests writes on where the system took a part only, and when it writes the file anew", () => {
  const folder = mkdtempSync(path.join(tmpdir(), "steerage-ended-"));
  const options = { file: path.join(folder, "ended.ndjson"), logger: keptLogger().logger, compactAfterLines: 3 };
  try {
    const store = new EndedStore(options);
    for (const number of [1, 2, 3]) store.add(entry(number));
    store.acknowledge([entry(2)]);
    store.close();
    const reopened = new EndedStore(options);
    expect(reopened.waiting(() => true, 10)).toEqual([entry(1), entry(3)]);
    expect(reopened.counters(() => true)).toMatchObject([{ requests: 3, computed_completion: 6 }]);
    reopened.close();
  } finally {
    rmSync(folder, { recursive: true });
  }
});
