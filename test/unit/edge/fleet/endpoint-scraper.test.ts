import { describe, expect, it } from "vitest";
import { endpointDigest } from "../../../../edge/fleet/endpoint-digest.ts";
import { EndpointScraper } from "../../../../edge/fleet/endpoint-scraper.ts";
import type { ScrapedLoad } from "../../../../edge/fleet/scraped-load.ts";
import type { StaticEndpoint } from "../../../../edge/fleet/settings.ts";
import { silentLogger } from "../../../support/dispatch-fakes.ts";
import { ManualClock } from "../../../support/manual-clock.ts";

const endpoint: StaticEndpoint = {
  id: "local",
  url: "http://127.0.0.1:9000/v1",
  models: ["small", "other"],
  pool: null,
  weight: 1,
  priority: 1,
  slots: 4,
};
const PAGE =
  'vllm:num_requests_running{model_name="small"} 3\nvllm:num_requests_waiting{model_name="small"} 2\nvllm:kv_cache_usage_perc{model_name="small"} 0.25\n';
const settled = () => new Promise((resolve) => setImmediate(resolve));

function bench(everyMs = 1_000) {
  const clock = new ManualClock();
  const asked: string[] = [];
  const heard: (ReadonlyMap<string, ScrapedLoad> | null)[] = [];
  const page: { text: string | null } = { text: PAGE };
  const scraper = new EndpointScraper({
    clock,
    logger: silentLogger,
    fetchText: (url, timeoutMs) => {
      asked.push(`${url} ${timeoutMs}`);
      return page.text === null ? Promise.reject(new Error("gone")) : Promise.resolve(page.text);
    },
    endpoints: [endpoint],
    settings: { everyMs, timeoutMs: 500 },
    onScraped: (_id, loads) => heard.push(loads),
  });
  scraper.start();
  const pass = async (seconds: number): Promise<void> => {
    await settled();
    for (let second = 0; second < seconds; second++) {
      clock.advance(1_000);
      await settled();
    }
  };
  return { clock, asked, heard, page, scraper, pass };
}

describe("the metrics pages of static endpoints", () => {
  it("are read at the endpoint's origin at each interval", async () => {
    const { asked, heard, pass } = bench();
    await pass(2);
    expect(asked).toEqual(Array(3).fill("http://127.0.0.1:9000/metrics 500"));
    expect(heard.at(-1)?.get("small")).toEqual({ inFlight: 5, waiting: 2, kvUse: 0.25 });
  });

  it("are asked for less and less often while they cannot be read, and what was known is forgotten", async () => {
    const { asked, heard, page, pass } = bench();
    page.text = null;
    await pass(300);
    expect(asked.length).toBeLessThan(16);
    expect(heard.slice(1).every((loads) => loads === null)).toBe(true);
    page.text = PAGE;
    await pass(60);
    expect(heard.at(-1)?.has("small")).toBe(true);
  });

  it("are not read where the interval is 0, and no more once it is closed", async () => {
    const never = bench(0);
    await never.pass(5);
    expect(never.asked).toEqual([]);
    const { clock, asked, scraper, pass } = bench();
    await pass(1);
    scraper.close();
    await pass(5);
    expect([asked.length, clock.pendingTimers]).toEqual([2, 0]);
  });

  it("become the endpoint's load, of which our own share is not known", () => {
    const loads = new Map([["small", { inFlight: 5, waiting: 2, kvUse: 0.25 }]]);
    expect(endpointDigest(endpoint, "small", { loads, atMs: 7 })).toMatchObject({
      reportedInFlight: 5,
      reportedInFlightOfThisEdge: null,
      waiting: 2,
      reportedAtMs: 7,
      freeKvCells: 750,
      totalKvCells: 1_000,
    });
    for (const digest of [endpointDigest(endpoint, "missing", { loads, atMs: 7 }), endpointDigest(endpoint, "small")])
      expect(digest).toMatchObject({ ready: true, reportedInFlight: null, reportedAtMs: null, totalKvCells: 0 });
  });
});
