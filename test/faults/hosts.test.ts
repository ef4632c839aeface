import { afterAll, beforeAll, describe, expect, it } from "vitest";
import { EdgeOnNode } from "../support/edge-on-node.ts";
import { hostReport } from "../support/fleet-report.ts";
import { answerOfFive, ScriptedEndpoint } from "../support/scripted-endpoint.ts";
import { until } from "../support/stack.ts";

const question = { model: "m", messages: [{ role: "user", content: "Count." }] };
const SLOTS = 4;
const CLAIMS = 'steerage_leases_open{kind="claim"}';

describe("a host whose reports cross with what is sent to it", () => {
  let host: ScriptedEndpoint;
  let edge: EdgeOnNode;
  let token: string;
  let seq = 0;

  beforeAll(async () => {
    host = await ScriptedEndpoint.start();
    edge = await EdgeOnNode.start({
      auth: { default_rpm: 0, default_tpm: 0, flush_interval: "20ms" },
      router: { failure_threshold: 1_000, retries: 0 },
      drain_timeout: "1s",
    });
    token = await edge.enrolHost("gpu");
    await report();
  });
  afterAll(async () => {
    await edge.remove();
    await host.stop();
  });

  /** It never knows of what is on its way. */
  const report = async (): Promise<void> => {
    const answer = await fetch(`${edge.urls.agentUrl}/agent/v1/reports`, {
      method: "POST",
      headers: { "content-type": "application/json", authorization: `Bearer ${token}` },
      body: JSON.stringify(hostReport({ seq: ++seq, at: Date.now(), url: host.url }, { slots: SLOTS, in_flight: 0 })),
    });
    expect(answer.status).toBe(200);
    await answer.text();
  };
  const ask = async (): Promise<number> => {
    const answer = await edge.post("/chat/completions", question);
    await answer.text();
    return answer.status;
  };

  it("is never given more than its slots, and counts stay between none and all of them (C115)", async () => {
    const held: (() => void)[] = [];
    host.script = (request, response) => void held.push(() => answerOfFive(request, response));
    const asked = Array.from({ length: 40 }, ask);
    const counts: (number | null)[] = [];
    let answered = 0;
    await until("all are answered", async () => {
      await report();
      expect(held.length).toBeLessThanOrEqual(SLOTS);
      counts.push(await edge.metric(CLAIMS));
      const some = held.splice(0, 2);
      for (const answer of some) answer();
      answered += some.length;
      return answered === asked.length;
    });
    expect(await Promise.all(asked)).toEqual(asked.map(() => 200));
    expect(Math.min(...counts.map(Number))).toBeGreaterThanOrEqual(0);
    expect(Math.max(...counts.map(Number))).toBe(SLOTS);
    await edge.idle();
  });

  it("that breaks off leaves no claim and no connection behind, round after round (C115)", async () => {
    host.script = answerOfFive;
    expect(await ask()).toBe(200);
    const connections = await host.openConnections();
    for (let round = 0; round < 30; round++) {
      host.script = (_request, response) =>
        void (round % 2 === 0 ? response.destroy() : response.socket?.resetAndDestroy());
      expect(await Promise.all([ask(), ask(), report()])).toEqual([502, 502, undefined]);
    }
    await edge.idle();
    host.script = answerOfFive;
    expect(await ask()).toBe(200);
    expect(await edge.metric(CLAIMS)).toBe(0);
    await until("connections are as before", async () => (await host.openConnections()) <= connections);
  });
});
