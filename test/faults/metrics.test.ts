import { randomBytes } from "node:crypto";
import { afterAll, beforeAll, describe, expect, it } from "vitest";
import { EdgeOnNode } from "../support/edge-on-node.ts";
import { answerOfFive, ScriptedEndpoint } from "../support/scripted-endpoint.ts";

let endpoint: ScriptedEndpoint;
let edge: EdgeOnNode;
beforeAll(async () => {
  endpoint = await ScriptedEndpoint.start();
  edge = await EdgeOnNode.start({
    endpoints: [{ id: "other", url: endpoint.url, models: ["m"] }],
    auth: { default_rpm: 0, default_tpm: 0 },
    drain_timeout: "1s",
  });
});
afterAll(async () => {
  await edge.remove();
  await endpoint.stop();
});

const CALLS = 300;

interface Sample {
  readonly name: string;
  readonly labels: string;
  readonly value: number;
}
const LABEL = String.raw`[a-zA-Z_]\w*="(?:[^"\\\n]|\\["\\n])*"`;
const SAMPLE = new RegExp(String.raw`^(\w+)(?:\{(${LABEL}(?:,${LABEL})*)\})? (-?\d+(?:\.\d+)?(?:e[+-]?\d+)?)$`);

/** Every line of the page, each of which must be a comment or a sample with a finite value. */
async function samples(): Promise<Sample[]> {
  const page = await (await fetch(edge.urls.metricsUrl ?? "")).text();
  return page
    .split("\n")
    .filter((line) => line !== "" && !line.startsWith("# "))
    .map((line) => {
      const [, name, labels = "", value] = SAMPLE.exec(line) ?? [];
      if (name === undefined) throw new Error(`no sample: ${line}`);
      return { name, labels, value: Number(value) };
    });
}

function checkHistograms(all: readonly Sample[]): void {
  const counts = all.filter(({ name }) => name.endsWith("_seconds_count"));
  expect(counts.length).toBeGreaterThan(0);
  for (const { name, value } of counts) {
    const buckets = all.filter((one) => one.name === name.replace(/_count$/, "_bucket"));
    expect(buckets.map((one) => one.value)).toEqual(buckets.map((one) => one.value).toSorted((a, b) => a - b));
    expect(buckets.at(-1)).toMatchObject({ labels: 'le="+Inf"', value });
  }
}

describe("the page of numbers", () => {
  it("holds no NaN and no infinity when nothing has happened, and when answers had no tokens (C106)", async () => {
    expect((await samples()).length).toBeGreaterThan(0);
    const usage = { prompt_tokens: 0, completion_tokens: 0, total_tokens: 0 };
    endpoint.script = (request, response) => {
      const stream = request.body.includes('"stream":true');
      response.writeHead(200, { "content-type": stream ? "text/event-stream" : "application/json" });
      const choices = [{ index: 0, delta: {}, finish_reason: "stop" }];
      response.end(
        stream ? `data: ${JSON.stringify({ choices, usage })}\n\ndata: [DONE]\n\n` : JSON.stringify({ usage }),
      );
    };
    for (const stream of [true, false]) {
      const answer = await edge.post("/chat/completions", { model: "m", messages: [], stream });
      expect(answer.status).toBe(200);
      await answer.text();
    }
    await samples();
    endpoint.script = answerOfFive;
    await (await edge.post("/chat/completions", { model: "m", messages: [], stream: true })).text();
    await edge.idle();
    const after = await samples();
    checkHistograms(after);
    expect(after).toContainEqual({
      name: "steerage_requests_total",
      labels: 'model="m",outcome="completed"',
      value: 3,
    });
    const ready: unknown = await (await fetch(`${edge.origin}/ready`)).json();
    expect(ready).toEqual({ status: "ready", store: "ok", models: 1, models_ready: 1 });
  });

  it("does not grow with the names that callers make up, and names nobody (C105)", async () => {
    const before = await samples();
    const strange = ['m"', "m\\", "m\nx", "x".repeat(200), "\u{1F600}"];
    const names = Array.from({ length: CALLS }, (_, at) => strange[at] ?? `m-${randomBytes(6).toString("hex")}`);
    const statuses = new Set<number>();
    const client = async (): Promise<void> => {
      for (let model = names.pop(); model !== undefined; model = names.pop()) {
        const answer = await edge.post("/chat/completions", { model, messages: [] });
        statuses.add(answer.status);
        await answer.arrayBuffer();
      }
    };
    await Promise.all(Array.from({ length: 16 }, client));
    expect([...statuses]).toEqual([404]);
    const after = await samples();
    expect(after.length).toBeLessThanOrEqual(before.length + 1);
    expect(after).toContainEqual({
      name: "steerage_requests_total",
      labels: 'model="unknown",outcome="refused"',
      value: CALLS,
    });
    expect(JSON.stringify(after)).not.toContain(edge.key.split("-")[2]);
    expect(JSON.stringify(after)).not.toContain("req_");
  });
});
