import { afterEach, describe, expect, it } from "vitest";
import type { EdgeConfigInput } from "../../edge/config.ts";
import { EdgeOnNode } from "../support/edge-on-node.ts";
import { errorBodyOf } from "../support/error-body.ts";
import { answerOfFive, ScriptedEndpoint, type Script, type SeenRequest } from "../support/scripted-endpoint.ts";
import { until } from "../support/stack.ts";

/** Machines that the test plays, and an edge in front of them. */
const opened: { remove(): Promise<void> }[] = [];
afterEach(async () => {
  for (const one of opened.splice(0).toReversed()) await one.remove();
});

async function machine(script: Script = answerOfFive): Promise<ScriptedEndpoint> {
  const one = await ScriptedEndpoint.start();
  one.script = script;
  opened.push({ remove: () => one.stop() });
  return one;
}

async function edgeWith(config: EdgeConfigInput): Promise<EdgeOnNode> {
  const edge = await EdgeOnNode.start({
    auth: {
      default_rpm: 0,
      default_tpm: 0,
      pricing: {
        big: { prompt_per_1k: 100, completion_per_1k: 1_000 },
        small: { prompt_per_1k: 3, completion_per_1k: 7 },
      },
    },
    drain_timeout: "1s",
    ...config,
  });
  opened.push(edge);
  return edge;
}

const question = (model: string, more: object = {}) => ({
  model,
  messages: [{ role: "user", content: "Count." }],
  ...more,
});
const decisionOf = async (edge: EdgeOnNode, answer: Response): Promise<unknown> => {
  const id = answer.headers.get("x-request-id") ?? "";
  const headers = { authorization: `Bearer ${edge.key}` };
  return (await fetch(`${edge.origin}/requests/${id}`, { headers })).json();
};
const claims = async (edge: EdgeOnNode): Promise<string | undefined> => {
  const text = await (await fetch(edge.urls.metricsUrl ?? "")).text();
  return text.split("\n").find((line) => line.startsWith('steerage_leases_open{kind="claim"}'));
};

describe("C119: a model whose machines fail", () => {
  const broken: Script = (_request, response) => response.writeHead(502).end("{}");

  it("is answered by its fallback, under its alias too, and billed as the one that answered", async () => {
    const [big, small] = await Promise.all([machine(broken), machine()]);
    const edge = await edgeWith({
      endpoints: [
        { id: "one", url: big.url, models: ["big"] },
        { id: "two", url: small.url, models: ["small"] },
      ],
      models: [{ name: "big", aliases: ["large"], fallbacks: ["small"] }],
    });
    const answer = await edge.post("/chat/completions", question("large"));
    expect(answer.status).toBe(200);
    expect(answer.headers.get("x-steerage-route")).toBe("two/small;attempts=2;model=small");
    await answer.text();
    expect(JSON.parse(small.seen[0]?.body ?? "")).toMatchObject({ model: "small" });
    expect(await decisionOf(edge, answer)).toMatchObject({
      asked_model: "big",
      model: "small",
      outcome: "completed",
      attempts: [
        { attempt: 1, model: "big", replica: "one/big", end: "failed", failure: "upstream_error" },
        { attempt: 2, model: "small", replica: "two/small", end: "answered" },
      ],
    });
    await edge.stop();
    expect(await edge.rows()).toMatchObject([
      {
        model: "small",
        backend: "two",
        promptTokens: 7,
        completionTokens: 5,
        outcome: "completed",
        costNanoUsd: String(7 * 3 + 5 * 7),
      },
    ]);
  });

  it("is answered by its fallback at once while none of its machines was ever there", async () => {
    const small = await machine();
    const edge = await edgeWith({
      endpoints: [{ id: "two", url: small.url, models: ["small"] }],
      models: [{ name: "big", aliases: ["large"], fallbacks: ["small"] }],
    });
    const sinceMs = performance.now();
    const answer = await edge.post("/chat/completions", question("large", { stream: true }));
    expect(await answer.text()).toContain("[DONE]");
    // A machine for a model without a stand-in is waited for ten seconds.
    expect(performance.now() - sinceMs).toBeLessThan(8_000);
    expect(answer.headers.get("x-steerage-route")).toBe("two/small;attempts=1;model=small");
  });

  it("gives the last machine's reason when every model failed, as one failed row of the last", async () => {
    const [big, small] = await Promise.all([machine(broken), machine(broken)]);
    const edge = await edgeWith({
      endpoints: [
        { id: "one", url: big.url, models: ["big"] },
        { id: "two", url: small.url, models: ["small"] },
      ],
      models: [{ name: "big", fallbacks: ["small"] }],
    });
    const answer = await edge.post("/chat/completions", question("big"));
    expect([answer.status, (await errorBodyOf(answer)).code]).toEqual([502, "upstream_error"]);
    expect([big.seen.length, small.seen.length]).toEqual([1, 1]);
    await edge.stop();
    expect(await edge.rows()).toMatchObject([{ model: "small", outcome: "failed", costNanoUsd: "0" }]);
  });
});

describe("hedging", () => {
  it("brings the answer of the faster machine, cancels the slower at once, and charges one", async () => {
    const machines = await Promise.all([machine(), machine()]);
    const edge = await edgeWith({
      endpoints: machines.map(({ url }, place) => ({ id: `e${place}`, url, models: ["big"], slots: 8 })),
      router: { default_profile: "quick", profiles: { quick: { hedging: true, affinity: false } } },
    });
    // How soon streams begin is learnt from these, too few to have earned a hedge.
    for (let call = 0; call < 30; call++)
      await (await edge.post("/chat/completions", question("big", { stream: true }))).text();
    // One is earned in fifty requests, and whole answers spend none.
    for (let call = 0; call < 55; call++) await (await edge.post("/chat/completions", question("big"))).text();
    const stuck: SeenRequest[] = [];
    const first: Script = (request, response) => {
      if (stuck.length === 0) stuck.push(request);
      else answerOfFive(request, response);
    };
    for (const one of machines) one.script = first;
    const answer = await edge.post("/chat/completions", question("big", { stream: true }));
    expect(await answer.text()).toContain("five");
    expect(stuck).toHaveLength(1);
    await stuck[0]?.aborted;
    expect(await decisionOf(edge, answer)).toMatchObject({
      outcome: "completed",
      attempts: [
        { attempt: 1, end: "lost_race", failure: null },
        { attempt: 2, end: "answered" },
      ],
    });
    await until("no claim is held", async () => (await claims(edge))?.endsWith(" 0") === true);
    await edge.stop();
    const rows = await edge.rows();
    const row = rows.find(({ requestId }) => requestId === answer.headers.get("x-request-id"));
    expect(row).toMatchObject({ promptTokens: 7, completionTokens: 5, exactness: "exact", outcome: "completed" });
    expect(new Set(rows.map(({ requestId }) => requestId)).size).toBe(rows.length);
  });
});

describe("a prompt that no replica can hold", () => {
  it("is a 400 at once that names both numbers, and no machine sees it", async () => {
    const one = await machine();
    const edge = await edgeWith({
      endpoints: [{ id: "one", url: one.url, models: ["big"] }],
      models: [{ name: "big", context_length: 100 }],
    });
    const content = "word ".repeat(200);
    const answer = await edge.post("/chat/completions", { model: "big", messages: [{ role: "user", content }] });
    const error = await errorBodyOf(answer);
    expect([answer.status, error.code]).toEqual([400, "context_length_exceeded"]);
    expect(error.message).toContain("100");
    expect(error.message).toContain("200");
    expect(one.seen).toEqual([]);
  });
});

describe("endpoints of one pool", () => {
  it("share by weight under one name, whatever each calls the model, and a lower tier has what the higher cannot take", async () => {
    const held: (() => void)[] = [];
    const hold: Script = (request, response) => held.push(() => answerOfFive(request, response));
    const machines = await Promise.all([machine(hold), machine(hold), machine(hold)]);
    const one = (place: number) => ({ url: machines[place]?.url ?? "", pool: "public", slots: 6 });
    const edge = await edgeWith({
      endpoints: [
        { id: "heavy", ...one(0), models: ["its-own-name"], weight: 3 },
        { id: "light", ...one(1), models: ["another-name"] },
        { id: "spare", ...one(2), models: ["third-name"], priority: 1 },
      ],
      models: [{ name: "public", aliases: ["latest"] }],
      router: { admission: { bands: [{ name: "default", saturation_ceiling: 2 }] } },
    });
    const seen = () => machines.map((each) => each.seen.length);
    const calls: Promise<Response>[] = [];
    const askUntil = async (count: number): Promise<void> => {
      while (calls.length < count) {
        calls.push(edge.post("/chat/completions", question(calls.length % 2 === 0 ? "public" : "latest")));
        await until("a machine has it", () => Promise.resolve(held.length === calls.length));
      }
    };
    await askUntil(8);
    expect(seen()).toEqual([6, 2, 0]);
    await askUntil(12);
    expect(seen()).toEqual([6, 6, 0]);
    await askUntil(14);
    expect(seen()).toEqual([6, 6, 2]);
    expect(machines.map((each) => JSON.parse(each.seen[0]?.body ?? "").model)).toEqual([
      "its-own-name",
      "another-name",
      "third-name",
    ]);
    for (const answer of held) answer();
    for (const call of calls) expect((await call).status).toBe(200);
  });
});

describe("labels", () => {
  it("keep a model to the machines that carry them", async () => {
    const [us, eu] = await Promise.all([machine(), machine()]);
    const edge = await edgeWith({
      endpoints: [
        { id: "us", url: us.url, models: ["big"], labels: { zone: "us" } },
        { id: "eu", url: eu.url, models: ["big"], labels: { zone: "eu" } },
      ],
      models: [{ name: "big", node_selector: { zone: "eu" } }],
    });
    for (let call = 0; call < 6; call++) await (await edge.post("/chat/completions", question("big"))).text();
    expect([us.seen.length, eu.seen.length]).toEqual([0, 6]);
  });
});

describe("the operator's dashboard", () => {
  it("shows on the admin listener what was just decided", async () => {
    const one = await machine();
    const edge = await edgeWith({ endpoints: [{ id: "one", url: one.url, models: ["big"] }] });
    const answer = await edge.post("/chat/completions", question("big"));
    await answer.text();
    const page = await fetch(`${edge.urls.adminUrl ?? ""}/`);
    expect(page.headers.get("content-security-policy")).toContain("default-src 'none'");
    const text = await page.text();
    expect(text).toContain(answer.headers.get("x-request-id"));
    expect(text).toContain("one/big");
    expect(text).not.toContain("Count.");
  });
});

describe("the six time limits", () => {
  const silent: Script = () => undefined;
  const headed: Script = (_request, response) => {
    response.writeHead(200, { "content-type": "text/event-stream" });
    response.flushHeaders();
  };
  const stalled: Script = (request, response) => {
    headed(request, response);
    const delta = { choices: [{ index: 0, delta: { content: "a" }, finish_reason: null }] };
    response.write(`data: ${JSON.stringify(delta)}\n\n`);
  };

  it.each([
    ["response_header", silent, true],
    ["first_token", headed, true],
    ["idle", stalled, true],
    ["generation", silent, false],
    ["total", silent, false],
  ] as const)(
    "%s ends an answer with a code of its own, and the machine's connection",
    async (limit, script, stream) => {
      const one = await machine(script);
      const edge = await edgeWith({
        endpoints: [{ id: "one", url: one.url, models: ["big"] }],
        router: { retries: 0, timeouts: { [limit]: "150ms" } },
      });
      const answer = await edge.post("/chat/completions", question("big", { stream }));
      const text = await answer.text();
      expect(text).toContain(`"code":"${limit}_timeout"`);
      await one.seen[0]?.aborted;
      expect((await claims(edge))?.endsWith(" 0")).toBe(true);
    },
  );
});
