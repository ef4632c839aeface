import { describe, expect, it } from "vitest";
import { RunningRequests } from "../../../../edge/node/running-requests.ts";

function setUp() {
  const ends: (() => void)[] = [];
  const requests = new RunningRequests();
  const begin = () => requests.track(() => new Promise<void>((resolve) => ends.push(resolve)));
  return { requests, begin, ends };
}

describe("running requests", () => {
  it("are idle at once when nothing runs", async () => {
    expect(await setUp().requests.idleWithin(0)).toBe(true);
  });

  it("are idle when the last one ends", async () => {
    const { requests, begin, ends } = setUp();
    const runs = [begin(), begin()];
    const idle = requests.idleWithin(60_000);
    ends[0]?.();
    await runs[0];
    expect(requests.count).toBe(1);
    ends[1]?.();
    expect(await idle).toBe(true);
  });

  it("are not waited for longer than told, or when the wait is cut", async () => {
    const { requests, begin } = setUp();
    void begin();
    expect(await requests.idleWithin(1)).toBe(false);
    const cut = new AbortController();
    const waiting = requests.idleWithin(60_000, cut.signal);
    cut.abort();
    expect(await waiting).toBe(false);
    expect(await requests.idleWithin(60_000, cut.signal)).toBe(false);
  });

  it("count a run that failed as ended", async () => {
    const requests = new RunningRequests();
    await expect(requests.track(() => Promise.reject(new Error("broken")))).rejects.toThrow("broken");
    expect(requests.count).toBe(0);
  });
});
