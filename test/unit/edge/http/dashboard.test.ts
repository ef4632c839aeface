import { describe, expect, it } from "vitest";
import { createAdminApp, createApp } from "../../../../edge/app.ts";
import type { RequestDecision } from "../../../../edge/dispatch/account/decision-log.ts";
import type { EdgeDeps } from "../../../../edge/deps.ts";
import { bytes, duration, percent, seconds } from "../../../../edge/http/pages/figures.ts";
import { fakeEdge } from "../../../support/edge-deps.ts";

const HOSTILE = `<img src=x onerror="alert('x')">`;

const decision = (more: Partial<RequestDecision> = {}): RequestDecision => ({
  requestId: "req_1",
  project: "search",
  atMs: Date.UTC(2026, 0, 1, 12, 34, 56),
  askedModel: "big",
  model: "small",
  band: "bulk",
  queueMs: 1_500,
  ttftMs: 40,
  totalMs: 2_000,
  outcome: "completed",
  refusal: null,
  refusedUnder: null,
  attempts: [
    {
      attempt: 1,
      model: "big",
      replica: "gpu-1/r0",
      end: "failed",
      failure: "upstream_error",
      why: null,
    },
    {
      attempt: 2,
      model: "small",
      replica: "gpu-2/r0",
      end: "answered",
      failure: null,
      why: {
        band: "bulk",
        saturation: 0.25,
        ceiling: 0.7,
        by: "prefix",
        promptBytes: 4_000,
        candidates: [
          { replica: "gpu-2/r0", seconds: 1.5, terms: { load: 1.25, kv: 0.25, slo: 0 }, matchedBytes: 3_000 },
        ],
      },
    },
  ],
  ...more,
});

function adminApp(more: Partial<EdgeDeps> = {}) {
  return createAdminApp({ ...fakeEdge().deps, ...more }, { takesReports: false });
}

const page = async (more: Partial<EdgeDeps> = {}): Promise<string> => (await adminApp(more).request("/")).text();

describe("the operator's dashboard", () => {
  it("shows each decision with its band, wait, machines, terms and share of the prompt", async () => {
    const text = (await page({ latestDecisions: () => [decision()] })).replaceAll(/\s+/g, " ");
    for (const part of ["12:34:56", "big → small", "bulk, search", "queued 1.5 s", "failed with upstream_error"])
      expect(text).toContain(part);
    expect(text).toContain("25 % saturated under a ceiling of 70 %");
    expect(text).toContain("because it knows the prompt");
    expect(text).toMatch(/class="chosen">.*gpu-2\/r0.*1\.500.*1\.250.*0\.250.*0\.000.*75 %/);
  });

  it("shows how things stood when a request was refused", async () => {
    const refusedUnder = { band: "bulk", saturation: 1.25, ceiling: 0.7, waiting: 31 };
    const refused = decision({ outcome: "shed", refusal: "queue_full", refusedUnder, attempts: [] });
    const text = (await page({ latestDecisions: () => [refused] })).replaceAll(/\s+/g, " ");
    expect(text).toContain("125 % saturated, the ceiling of band bulk at 70 %, and 31 waiting there");
    expect(text).toMatch(/class="shed">queue_full</);
    expect(text).toContain("never reached a machine");
  });

  it("shows the bands, the saturation and the replicas of each pool", async () => {
    const stats = {
      pool: "m",
      inFlight: 3,
      queueDepthByBand: { bulk: 2 },
      oldestWaitMsByBand: { bulk: 4_000 },
      queueBytesByBand: { bulk: 2_048 },
      breakers: { "b/r": "open" as const },
      saturation: 0.5,
      replicas: [
        {
          replica: "b/r",
          usable: true,
          slots: 7,
          inFlight: 3,
          othersInFlight: 1,
          waiting: 5,
          kvUse: 0.25,
          reportAgeMs: 900,
        },
      ],
    };
    const { metricsSources } = fakeEdge().deps;
    const coordinator = { stats: () => Promise.resolve([stats]) };
    const text = (await page({ metricsSources: { ...metricsSources, coordinator } })).replaceAll(/\s+/g, " ");
    for (const part of ["50 % saturated, 3 in flight", "out after failures", "2 KiB", "4.0 s", "25 %", "900 ms"])
      expect(text).toContain(part);
  });

  it("lets nothing that a caller or a host named become markup", async () => {
    const text = await page({
      latestDecisions: () => [decision({ requestId: HOSTILE, project: HOSTILE, askedModel: HOSTILE, model: HOSTILE })],
    });
    expect(text).not.toContain("<img");
    expect(text).toContain("&lt;img src=x onerror=");
    expect(text).not.toMatch(/id="<|id="[^"]*" onerror/);
  });

  it("runs its own script and style alone, in no frame, and is never kept", async () => {
    for (const path of ["/", "/dashboard.css", "/dashboard.js"]) {
      const answer = await adminApp().request(path);
      expect([path, answer.status]).toEqual([path, 200]);
      const policy = answer.headers.get("content-security-policy") ?? "";
      expect(policy).toContain("default-src 'none'");
      expect(policy).toContain("script-src 'self'");
      expect(policy).toContain("frame-ancestors 'none'");
      expect(policy).not.toContain("unsafe");
      expect(answer.headers.get("x-content-type-options")).toBe("nosniff");
      expect(answer.headers.get("cache-control")).toBe("no-store");
    }
    const text = await page();
    expect(text).not.toMatch(/<script(?! src="\/dashboard\.js")|<style| style=| on[a-z]+=/);
    expect(text).not.toMatch(/https?:\/\//);
  });

  it("says so where there is nothing to show, and in which state the edge is", async () => {
    const text = await page({ draining: () => true });
    for (const part of ["No model is served", "No host reports", "Nothing was asked", "takes nothing new"])
      expect(text).toContain(part);
    expect(await page({ storeState: () => Promise.resolve("away") })).toContain("the database is away");
  });

  it("is not on the public listener", async () => {
    const app = createApp({ ...fakeEdge().deps, latestDecisions: () => [decision()] });
    expect(await (await app.request("/", { headers: { accept: "text/html" } })).text()).not.toContain("req_1");
    expect((await app.request("/dashboard.js")).status).toBe(404);
  });
});

describe("figures", () => {
  it("are as long as they are telling", () => {
    expect([duration(0.4), duration(999), duration(1_000), duration(119_000), duration(120_000)]).toEqual([
      "0 ms",
      "999 ms",
      "1.0 s",
      "119.0 s",
      "2 min",
    ]);
    expect([bytes(1_023), bytes(1_024), bytes(2 ** 20)]).toEqual(["1023 B", "1 KiB", "1.0 MiB"]);
    expect([percent(0.504), seconds(1.23456), seconds(Infinity)]).toEqual(["50 %", "1.235", "> 999"]);
  });
});
