import { afterEach, describe, expect, it } from "vitest";
import type { EdgeConfigInput } from "../../edge/config.ts";
import { EdgeOnNode } from "../support/edge-on-node.ts";
import { errorBodyOf } from "../support/error-body.ts";
import { answerOfFive, ScriptedEndpoint } from "../support/scripted-endpoint.ts";
import { until } from "../support/stack.ts";

const question = { model: "m", messages: [{ role: "user", content: "Count." }] };

const opened: { remove(): Promise<void> }[] = [];
afterEach(async () => {
  for (const one of opened.splice(0).toReversed()) await one.remove();
});

async function machine(): Promise<ScriptedEndpoint> {
  const one = await ScriptedEndpoint.start();
  opened.push({ remove: () => one.stop() });
  return one;
}

async function edgeFor(machines: readonly ScriptedEndpoint[], router: EdgeConfigInput["router"]): Promise<EdgeOnNode> {
  const edge = await EdgeOnNode.start({
    endpoints: machines.map(({ url }, place) => ({ id: `e${place + 1}`, url, models: ["m"], slots: 4 })),
    auth: { default_rpm: 0, default_tpm: 0, flush_interval: "20ms" },
    router: router ?? {},
    drain_timeout: "1s",
  });
  opened.push(edge);
  return edge;
}

describe("machines that are slow to answer", () => {
  it.each([
    [true, "response_header_timeout"],
    [false, "generation_timeout"],
  ])(
    "are not tried one after the other, since each would read the prompt anew; stream: %s (C108)",
    async (stream, code) => {
      const machines = await Promise.all([machine(), machine(), machine()]);
      for (const one of machines) one.script = () => undefined;
      const edge = await edgeFor(machines, { timeouts: { response_header: "1s", generation: "1s" } });
      const answer = await edge.post("/chat/completions", { ...question, stream });
      expect(answer.status).toBe(504);
      expect((await errorBodyOf(answer)).code).toBe(code);
      expect(Number(answer.headers.get("retry-after"))).toBeGreaterThanOrEqual(1);
      const seen = machines.flatMap((one) => one.seen);
      expect(seen).toHaveLength(1);
      await seen[0]?.aborted;
      await edge.idle();
    },
  );
});

describe("the breaker of a machine", () => {
  it("lets one probe through after the cool-down; a probe that was cut opens it again, a good one closes it (C112)", async () => {
    const [bad, good] = [await machine(), await machine()];
    bad.script = (_request, response) => response.destroy();
    const edge = await edgeFor([bad, good], { failure_threshold: 1, cooldown: "800ms" });
    const state = async (name: "open" | "half_open"): Promise<boolean> =>
      (await edge.metric(`steerage_breakers{replica="e1/m",state="${name}"}`)) === 1;
    const ask = (signal?: AbortSignal): Promise<Response> =>
      edge.post("/chat/completions", question, signal === undefined ? {} : { signal });
    await until("it is out", async () => {
      expect((await ask()).status).toBe(200);
      return state("open");
    });
    const before = bad.seen.length;
    expect(before).toBeGreaterThan(0);

    bad.script = () => undefined;
    await until("it may be probed", () => state("half_open"));
    const leaving = new AbortController();
    const probes: Promise<unknown>[] = [];
    await until("it is probed", () => {
      if (bad.seen.length === before) probes.push(ask(leaving.signal).catch(() => "left"));
      return bad.seen.length > before;
    });
    // While the probe hangs nobody else is sent there.
    for (let call = 0; call < 5; call++) expect((await ask()).status).toBe(200);
    expect(bad.seen).toHaveLength(before + 1);
    leaving.abort();
    expect(await Promise.all(probes)).toContain("left");
    await until("it is out again", () => state("open"));

    bad.script = answerOfFive;
    await until("it is back", async () => {
      expect((await ask()).status).toBe(200);
      return !(await state("open")) && !(await state("half_open"));
    });
    expect(bad.seen.length).toBeGreaterThan(before + 1);
    await edge.idle();
  });
});

describe("a machine that takes requests and never answers", () => {
  it("costs a handful of callers their time, then nobody (C111)", async () => {
    const [silent, good] = [await machine(), await machine()];
    silent.script = () => undefined;
    const edge = await edgeFor([silent, good], {
      failure_threshold: 3,
      timeouts: { response_header: "400ms", generation: "400ms" },
    });
    const statuses: number[] = [];
    for (let call = 0; call < 40; call++) {
      const answer = await edge.post("/chat/completions", question);
      statuses.push(answer.status);
      await answer.text();
    }
    expect(statuses.filter((status) => status === 504)).toHaveLength(3);
    expect(statuses.filter((status) => status === 200)).toHaveLength(37);
    expect(silent.seen).toHaveLength(3);
    expect(await edge.metric('steerage_breakers{replica="e1/m",state="open"}')).toBe(1);
    await edge.idle();
  });
});
