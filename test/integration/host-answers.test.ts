import { readFileSync } from "node:fs";
import path from "node:path";
import { afterEach, beforeEach, describe, expect, it } from "vitest";
import { answerSchema } from "../../shared/protocol/answer.ts";
import { FakeEdge } from "../support/fake-edge.ts";
import { HostProcess, until } from "../support/host-process.ts";

const CHAT = JSON.stringify({ model: "sim", messages: [{ role: "user", content: "hello" }], max_tokens: 4 });
const changed = (text: string, members: Readonly<Record<string, unknown>>): string =>
  JSON.stringify({ ...answerSchema.parse(JSON.parse(text)), ...members });

describe("a host whose edge's answers are altered on their way", () => {
  let edge: FakeEdge;
  let host: HostProcess;

  beforeEach(async () => {
    edge = await FakeEdge.start({ host: "gpu-1" });
    edge.reportEveryMs = 100;
    host = await HostProcess.start(edge, {
      heartbeat_interval: "100ms",
      reconnect_base: "50ms",
      reconnect_max: "200ms",
    });
    await until("a replica is ready", () => edge.lastReport?.replicas[0]?.state === "ready");
  });
  afterEach(async () => {
    await host.stop();
    await edge.stop();
  });

  const refused = (): number => edge.lastReport?.answers_refused ?? 0;
  const waits = (requestId: string): boolean =>
    edge.lastReport?.ended.some((entry) => entry.request_id === requestId) === true;
  const placement = (): string => {
    try {
      return readFileSync(path.join(host.folder, "data", "placement.json"), "utf8");
    } catch {
      return "";
    }
  };

  it("forgets no ended request by a forged acknowledgement, reports how many it refused, and heals by itself", async () => {
    const requestId = edge.newRequestId();
    edge.acknowledge = () => false;
    edge.onTheWay = (text, signature) => [
      changed(text, { ack_ended: [{ request_id: requestId, attempt: 1 }], report_every_ms: 3_600_000 }),
      signature,
    ];
    expect(refused()).toBe(0);
    expect((await host.request(await edge.sign({ body: CHAT, requestId }), CHAT)).status).toBe(200);
    await until("it is reported", () => waits(requestId));
    const before = refused();
    await until("three forged answers more are refused", () => refused() > before + 3);
    expect(waits(requestId)).toBe(true);
    expect(host.log.filter((line) => line.includes("not trusted") && line.includes("altered on the way"))).toHaveLength(
      1,
    );

    edge.acknowledge = () => true;
    edge.onTheWay = (...sent) => sent;
    await until("the true acknowledgement is taken", () => edge.lastReport?.ended.length === 0);
  });

  it("takes no order, no key and no question but the edge's own", async () => {
    const stranger = await FakeEdge.start({ host: "gpu-1" });
    try {
      const asked = { request_id: "req_asked", attempt: 1, replica: "sim", epoch: edge.lastReport?.epoch ?? 0 };
      const desired = { lease_number: 9, generation: 1, replicas: [] };
      edge.onTheWay = (text, signature) => [
        changed(text, { keys: [...edge.keys, ...stranger.keys], desired, ask_ended: [asked] }),
        signature,
      ];
      await until("it has refused three", () => refused() > 2);
      expect((await host.request(await stranger.sign({ body: CHAT }), CHAT)).status).toBe(401);
      expect(placement()).toBe("");
      expect(waits("req_asked")).toBe(false);

      edge.desired = desired;
      edge.asked = [asked];
      edge.onTheWay = (...sent) => sent;
      await until("the edge's own order is taken", () => placement().includes("9"));
      await until("the edge's own question is answered", () =>
        edge.ended.some(({ request_id }) => request_id === "req_asked"),
      );
    } finally {
      await stranger.stop();
    }
  });
});
