import { afterEach, describe, expect, it } from "vitest";
import type { EdgeConfigInput } from "../../edge/config.ts";
import { EdgeOnNode } from "../support/edge-on-node.ts";
import { errorBodyOf } from "../support/error-body.ts";
import { answerOfFive, ScriptedEndpoint, type Script } from "../support/scripted-endpoint.ts";
import { until } from "../support/stack.ts";

const question = { model: "m", messages: [{ role: "user", content: "Count." }] };
const ask = (edge: EdgeOnNode, headers: Readonly<Record<string, string>> = {}, body: unknown = question) =>
  edge.post("/chat/completions", body, { headers });
const busy =
  (headers: Readonly<Record<string, string>> = {}): Script =>
  (_request, response) => {
    response.writeHead(503, { "content-type": "application/json", ...headers }).end("{}");
  };

/** Machines that the test plays, and an edge in front of them. */
const opened: { remove(): Promise<void> }[] = [];
afterEach(async () => {
  for (const one of opened.splice(0).toReversed()) await one.remove();
});

async function machines(count: number): Promise<ScriptedEndpoint[]> {
  const all = await Promise.all(Array.from({ length: count }, () => ScriptedEndpoint.start()));
  for (const one of all) opened.push({ remove: () => one.stop() });
  return all;
}

async function edgeFor(urls: readonly string[], config: EdgeConfigInput = {}, slots = 4): Promise<EdgeOnNode> {
  const edge = await EdgeOnNode.start({
    endpoints: urls.map((url, place) => ({ id: `e${place + 1}`, url, models: ["m"], slots })),
    auth: { default_rpm: 0, default_tpm: 0 },
    drain_timeout: "1s",
    ...config,
  });
  opened.push(edge);
  return edge;
}

/** Holds every answer back until it is let go. */
function holding(endpoint: ScriptedEndpoint): { readonly held: (() => void)[]; readonly letGo: () => void } {
  const held: (() => void)[] = [];
  const state = { open: false };
  endpoint.script = (request, response) => {
    if (state.open) answerOfFive(request, response);
    else held.push(() => answerOfFive(request, response));
  };
  return {
    held,
    letGo: () => {
      state.open = true;
      for (const answer of held.splice(0)) answer();
    },
  };
}

describe("C089: every machine is busy", () => {
  it("says when to come back, and sends a machine nothing while it asked to be left alone", async () => {
    const [first, second] = await machines(2);
    for (const one of [first, second]) if (one !== undefined) one.script = busy({ "retry-after": "2" });
    const edge = await edgeFor([first?.url ?? "", second?.url ?? ""]);
    const refused = await ask(edge);
    expect(refused.status).toBe(503);
    expect(Number(refused.headers.get("retry-after"))).toBeGreaterThanOrEqual(1);
    expect(Number(refused.headers.get("retry-after"))).toBeLessThanOrEqual(2);
    const sinceMs = performance.now();
    for (const one of [first, second]) if (one !== undefined) one.script = answerOfFive;
    const seen = () => (first?.seen.length ?? 0) + (second?.seen.length ?? 0);
    expect(seen()).toBe(2);
    const waiting = ask(edge);
    await until("it is asked again", () => Promise.resolve(seen() > 2));
    expect(performance.now() - sinceMs).toBeGreaterThan(1_500);
    expect((await waiting).status).toBe(200);
  });
});

describe("C109: retries of client, gateway and router", () => {
  it("do not multiply: a tenth of the requests and a burst, whatever every machine says", async () => {
    const [first, second] = await machines(2);
    const bad: Script = (_request, response) => response.writeHead(502).end("{}");
    for (const one of [first, second]) if (one !== undefined) one.script = bad;
    const edge = await edgeFor([first?.url ?? "", second?.url ?? ""], { router: { failure_threshold: 1_000 } });
    const answers = await Promise.all(Array.from({ length: 100 }, () => ask(edge)));
    for (const answer of answers) {
      expect(answer.status).toBe(502);
      await answer.body?.cancel();
    }
    const calls = (first?.seen.length ?? 0) + (second?.seen.length ?? 0);
    expect(calls).toBeGreaterThan(100);
    expect(calls).toBeLessThanOrEqual(100 + 10 + 10);
  });
});

describe("C111: a machine that is dead", () => {
  it("is tried a handful of times in a hundred calls, which are all answered, and its breaker shows", async () => {
    const [living, dead] = await machines(2);
    const deadUrl = dead?.url ?? "";
    await dead?.stop();
    const edge = await edgeFor([deadUrl, living?.url ?? ""]);
    let second = 0;
    for (let call = 0; call < 100; call++) {
      const answer = await ask(edge);
      expect(answer.status).toBe(200);
      if (answer.headers.get("x-steerage-route")?.endsWith("attempts=2")) second++;
      await answer.text();
    }
    expect(second).toBeGreaterThan(0);
    expect(second).toBeLessThanOrEqual(6);
    expect(await edge.metric('steerage_breakers{replica="e1/m",state="open"}')).toBe(1);
  });
});

describe("C114: many calls with one long prompt", () => {
  it("are shared by the machines when one has its share, and the counters follow what runs", async () => {
    const all = await machines(3);
    const edge = await edgeFor(all.map(({ url }) => url));
    for (const one of all) one.script = (request, response) => setTimeout(() => answerOfFive(request, response), 20);
    const system = "You are a helpful machine. ".repeat(400);
    const body = { model: "m", messages: [{ role: "system", content: system }, question.messages[0]] };
    let left = 180;
    const client = async (): Promise<void> => {
      while (left-- > 0) expect(await (await ask(edge, {}, body)).json()).toHaveProperty("choices");
    };
    await Promise.all(Array.from({ length: 12 }, client));
    const counts = all.map(({ seen }) => seen.length);
    expect(counts.reduce((sum, count) => sum + count, 0)).toBe(180);
    expect(Math.min(...counts)).toBeGreaterThan(30);
    expect(await edge.metric('steerage_leases_open{kind="claim"}')).toBe(0);
  });
});

describe("C117: bounds of a band's queue", () => {
  it("hold by count, by bytes and by time, and everything is given back", async () => {
    const [one] = await machines(1);
    if (one === undefined) throw new Error("no machine");
    const { letGo, held } = holding(one);
    const bands = [
      { name: "high", priority: 10, queue_ttl: "1s", queue_capacity: 5, queue_bytes: "100KiB" },
      { name: "low", priority: 0, queue_ttl: "30s", queue_capacity: 5, queue_bytes: "100KiB" },
    ];
    const edge = await edgeFor([one.url], { router: { admission: { bands, default_band: "low" } } }, 1);
    const running = ask(edge);
    await until("one runs", () => Promise.resolve(held.length === 1));
    const waiting = Array.from({ length: 5 }, () => ask(edge));
    await until("five wait", async () => (await edge.metric('steerage_queue_depth{band="low"}')) === 5);
    const sixth = await ask(edge);
    expect([sixth.status, (await errorBodyOf(sixth)).code]).toEqual([429, "queue_full"]);
    expect(Number(sixth.headers.get("retry-after"))).toBeGreaterThanOrEqual(1);
    const big = { model: "m", messages: [{ role: "user", content: "x".repeat(60_000) }] };
    const high = [ask(edge, { "x-steerage-band": "high" }, big), ask(edge, { "x-steerage-band": "high" }, big)];
    const statuses = (await Promise.all(high)).map(({ status }) => status);
    // One did not fit by its bytes, the other's time was up.
    expect(statuses).toEqual([429, 429]);
    expect(one.seen).toHaveLength(1);
    letGo();
    for (const answer of await Promise.all([running, ...waiting])) expect(answer.status).toBe(200);
    expect(one.seen).toHaveLength(6);
    expect(await edge.metric('steerage_queue_depth{band="low"}')).toBe(0);
    expect(await edge.metric('steerage_queue_bytes{band="low"}')).toBe(0);
    expect(await edge.metric('steerage_queue_bytes{band="high"}')).toBe(0);
    expect(await edge.metric('steerage_queue_oldest_seconds{band="low"}')).toBe(0);
  });

  it("let a higher band go first, whatever came before it", async () => {
    const [one] = await machines(1);
    if (one === undefined) throw new Error("no machine");
    const { letGo, held } = holding(one);
    const edge = await edgeFor([one.url], {}, 1);
    const first = ask(edge);
    await until("one runs", () => Promise.resolve(held.length === 1));
    const order: string[] = [];
    const others: Promise<unknown>[] = [];
    for (const band of ["bulk", "default", "interactive"]) {
      others.push(
        ask(edge, { "x-steerage-band": band })
          .then((answer) => answer.text())
          .then(() => order.push(band)),
      );
      await until(`${band} waits`, async () => (await edge.metric(`steerage_queue_depth{band="${band}"}`)) === 1);
    }
    letGo();
    await Promise.all([first, ...others]);
    expect(order).toEqual(["interactive", "default", "bulk"]);
  });
});

describe("C118: all slots and the queue are full", () => {
  it("pages, health, models and metrics answer all the same", async () => {
    const [one] = await machines(1);
    if (one === undefined) throw new Error("no machine");
    const { letGo } = holding(one);
    const edge = await edgeFor([one.url], { router: { admission: { queue_capacity_per_band: 20 } } }, 1);
    const calls = Array.from({ length: 25 }, () => ask(edge));
    await until("the queue is full", async () => (await edge.metric('steerage_queue_depth{band="default"}')) === 20);
    const headers = { authorization: `Bearer ${edge.key}` };
    for (const path of ["/", "/health", "/v1/models"]) {
      const answer = await fetch(edge.origin + path, { headers, signal: AbortSignal.timeout(2_000) });
      expect([path, answer.status]).toEqual([path, 200]);
      await answer.text();
    }
    letGo();
    const statuses = (await Promise.all(calls)).map(({ status }) => status);
    expect(statuses.filter((status) => status === 200)).toHaveLength(21);
    expect(statuses.filter((status) => status === 429)).toHaveLength(4);
  });
});

describe("why a request went where it went", () => {
  it("is told to its own project and to nobody else", async () => {
    const [one] = await machines(1);
    const edge = await edgeFor([one?.url ?? ""]);
    const answer = await ask(edge, { "x-steerage-band": "interactive" });
    await answer.text();
    const id = answer.headers.get("x-request-id") ?? "";
    const look = (path: string, key = edge.key) =>
      fetch(`${edge.origin}/requests/${path}`, { headers: { authorization: `Bearer ${key}` } });
    expect(await (await look(id)).json()).toMatchObject({
      object: "request",
      id,
      model: "m",
      band: "interactive",
      outcome: "completed",
      attempts: [{ replica: "e1/m", failure: null, why: { ceiling: 1, candidates: [{ replica: "e1/m" }] } }],
    });
    expect((await look("req_unknown")).status).toBe(404);
    expect((await look(id, "sk-st-wrong")).status).toBe(401);
  });
});

describe("static endpoints that tell their load", () => {
  it("get less while others fill them", async () => {
    const [full, free] = await machines(2);
    const edge = await edgeFor([full?.url ?? "", free?.url ?? ""]);
    for (let call = 0; call < 4; call++) await (await ask(edge)).text();
    expect(full?.seen).toHaveLength(2);
    if (full !== undefined)
      full.metrics = 'vllm:num_requests_running{model_name="m"} 4\nvllm:num_requests_waiting{model_name="m"} 0\n';
    await until("the page was read", async () => {
      const before = full?.seen.length ?? 0;
      for (let call = 0; call < 4; call++) await (await ask(edge)).text();
      return full?.seen.length === before;
    });
  });
});
