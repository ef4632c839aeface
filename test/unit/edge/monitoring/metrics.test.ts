import { describe, expect, it } from "vitest";
import { EdgeMetrics, type MetricsSources } from "../../../../edge/monitoring/edge-metrics.ts";
import { MetricsRegistry } from "../../../../edge/monitoring/registry.ts";

const nothing: MetricsSources = {
  coordinator: { stats: () => Promise.resolve([]) },
  fleet: { hosts: () => Promise.resolve([]) },
};

describe("the exposition text", () => {
  it("has cumulative buckets whose last equals the count", () => {
    const registry = new MetricsRegistry();
    const seconds = registry.histogram("wait_seconds", "Wait.", [0.1, 1]);
    for (const value of [0.05, 0.1, 0.5, 7, Number.NaN]) seconds.observe(value, { model: "m" });
    expect(registry.text().split("\n")).toEqual([
      "# HELP wait_seconds Wait.",
      "# TYPE wait_seconds histogram",
      'wait_seconds_bucket{model="m",le="0.1"} 2',
      'wait_seconds_bucket{model="m",le="1"} 3',
      'wait_seconds_bucket{model="m",le="+Inf"} 4',
      'wait_seconds_sum{model="m"} 7.65',
      'wait_seconds_count{model="m"} 4',
      "",
    ]);
  });

  it("escapes label values", () => {
    const registry = new MetricsRegistry();
    registry.counter("c", "C.").add(1, { model: 'a"b\\c\nd' });
    expect(registry.text()).toContain('c{model="a\\"b\\\\c\\nd"} 1');
  });

  it("never says NaN or Infinity", () => {
    const registry = new MetricsRegistry();
    const gauge = registry.gauge("g", "G.");
    gauge.set(Number.NaN, { a: "1" });
    gauge.set(Infinity, { a: "2" });
    expect(registry.text()).not.toMatch(/NaN|Inf/);
  });
});

describe("the edge's metrics", () => {
  it("show every band's queue as empty while there is no pool", async () => {
    const text = await new EdgeMetrics().scrape({ ...nothing, bands: ["interactive", "bulk"] });
    expect(text.match(/^steerage_queue_(depth|oldest_seconds)\{.*/gm)).toEqual([
      'steerage_queue_depth{band="interactive"} 0',
      'steerage_queue_depth{band="bulk"} 0',
      'steerage_queue_oldest_seconds{band="interactive"} 0',
      'steerage_queue_oldest_seconds{band="bulk"} 0',
    ]);
  });

  it("have every name of the design and parse before anything has happened", async () => {
    const text = await new EdgeMetrics().scrape(nothing);
    const names = [...text.matchAll(/^# TYPE (\S+)/gm)].map(([, name]) => name);
    expect(names).toEqual([
      "steerage_requests_in_flight",
      "steerage_queue_depth",
      "steerage_queue_oldest_seconds",
      "steerage_saturation",
      "steerage_kv_occupancy",
      "steerage_replicas",
      "steerage_host_answers_refused",
      "steerage_requests_total",
      "steerage_ttft_seconds",
      "steerage_tpot_seconds",
      "steerage_ledger_difference",
      "steerage_leases_open",
      "steerage_queue_bytes",
      "steerage_breakers",
      "steerage_attempts_total",
      "steerage_speculation_tokens",
    ]);
    expect(text).toMatch(/^steerage_requests_in_flight 0$/m);
    expect(text).not.toMatch(/NaN|Infinity/);
  });

  it("count a request in while it runs and out by its outcome", async () => {
    const metrics = new EdgeMetrics();
    metrics.requestStarted();
    metrics.requestStarted();
    const attempts = [
      { model: "big", end: "lost_race" },
      { model: "m", end: "answered" },
    ];
    metrics.requestEnded({ model: "m", outcome: "completed", ttftMs: 20, tpotMs: null, attempts });
    const text = await metrics.scrape(nothing);
    expect(text).toMatch(/^steerage_requests_in_flight 1$/m);
    expect(text).toMatch(/^steerage_requests_total\{model="m",outcome="completed"\} 1$/m);
    expect(text).toMatch(/^steerage_attempts_total\{model="big",end="lost_race"\} 1$/m);
    expect(text).toMatch(/^steerage_ttft_seconds_bucket\{le="0.025"\} 1$/m);
    expect(text).not.toMatch(/^steerage_tpot_seconds_count/m);
  });

  it("read queues, claims and replicas anew at each scrape, so that what is gone does not linger", async () => {
    const metrics = new EdgeMetrics();
    const text = await metrics.scrape({
      coordinator: {
        stats: () =>
          Promise.resolve([
            {
              pool: "a",
              inFlight: 2,
              saturation: 0.5,
              queueDepthByBand: { bulk: 3 },
              oldestWaitMsByBand: { bulk: 400 },
            },
            { pool: "b", inFlight: 1, saturation: 0, queueDepthByBand: { bulk: 1 }, oldestWaitMsByBand: { bulk: 900 } },
          ]),
      },
      fleet: {
        hosts: () =>
          Promise.resolve([
            {
              host: "h",
              epoch: 1,
              lastReportAtMs: 1,
              draining: false,
              answersRefused: 2,
              replicas: [1, 2].map((id) => ({
                id: String(id),
                model: "m",
                state: "ready",
                reason: null,
                speculation: { drafted: 10 * id, accepted: 7, draft_model: 0 },
              })),
            },
          ]),
      },
      kvOccupancy: () => Promise.resolve({ h: 0.25 }),
      ledgerDifference: () => 0,
    });
    for (const line of [
      'steerage_queue_depth{band="bulk"} 4',
      'steerage_queue_oldest_seconds{band="bulk"} 0.9',
      'steerage_saturation{pool="a"} 0.5',
      'steerage_kv_occupancy{backend="h"} 0.25',
      'steerage_replicas{model="m",state="ready"} 2',
      'steerage_host_answers_refused{host="h"} 2',
      'steerage_speculation_tokens{model="m",kind="drafted"} 30',
      'steerage_speculation_tokens{model="m",kind="accepted"} 14',
      'steerage_leases_open{kind="claim"} 3',
      "steerage_ledger_difference 0",
    ]) {
      expect(text.split("\n")).toContain(line);
    }
    const later = await metrics.scrape(nothing);
    expect(later).not.toContain("steerage_replicas{");
    expect(later).not.toContain("steerage_host_answers_refused{");
    expect(later).not.toContain("steerage_saturation{");
    expect(later).not.toContain("steerage_speculation_tokens{");
  });
});
