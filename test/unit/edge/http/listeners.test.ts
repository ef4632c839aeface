import { describe, expect, it } from "vitest";
import { sha256 } from "../../../../edge/accounts/sha256.ts";
import { createAdminApp, createAgentApp, createApp, createMetricsApp } from "../../../../edge/app.ts";
import { fakeEdge, GOOD_KEY, HOST_TOKEN } from "../../../support/edge-deps.ts";

const send = (body: unknown, token = HOST_TOKEN) => ({
  method: "POST",
  body: JSON.stringify(body),
  headers: { "content-type": "application/json", authorization: `Bearer ${token}` },
});

describe("other listeners", () => {
  const report = {
    protocol: 1,
    host: "gpu-1",
    epoch: 1,
    seq: 7,
    at: 1,
    url: "http://127.0.0.1:8090",
    labels: {},
    replicas: [],
    ended: [
      {
        request_id: "req_1",
        attempt: 1,
        edge: "test-edge",
        replica: "r",
        epoch: 1,
        ended_at: 1,
        computed_prompt: 1,
        cached_prompt: 0,
        computed_completion: 1,
        outcome: "completed",
        exactness: "exact",
      },
    ],
    counters: [],
    gpus: [],
    memory: { total_bytes: 1, free_bytes: 1 },
    disk: null,
    weights: [],
    draining: false,
  };

  it("takes the report of an enrolled host and answers what is safe and which keys to accept", async () => {
    const { deps, reports, state } = fakeEdge();
    const asked = { request_id: "req_2", attempt: 1, replica: "m", epoch: 3 };
    state.asked = [asked];
    const response = await createAgentApp(deps).request("/agent/v1/reports", send(report));
    expect(response.status).toBe(200);
    const text = await response.text();
    expect(JSON.parse(text)).toEqual({
      protocol: 1,
      edge: "test-edge",
      ack_seq: 7,
      ack_ended: [{ request_id: "req_1", attempt: 1 }],
      ask_ended: [asked],
      edge_time: deps.clock.nowMs(),
      keys: [{ kty: "OKP", crv: "Ed25519", x: "public", kid: "k1" }],
      report_every_ms: 1_000,
      desired: null,
    });
    const signed: unknown = JSON.parse(response.headers.get("x-steerage-answer-signature") ?? "null");
    expect(signed).toEqual({
      aud: "gpu-1",
      report_sha256: await sha256(JSON.stringify(report)),
      answer_sha256: await sha256(text),
    });
    expect(reports).toHaveLength(1);
  });

  it("tells a host what to hold only while it has the placement lease, and under its number", async () => {
    const { deps, state } = fakeEdge();
    const desiredIn = async (): Promise<unknown> => {
      const response = await createAgentApp(deps).request("/agent/v1/reports", send(report));
      return Reflect.get(Object(await response.json()), "desired");
    };
    state.desired = { generation: 3, replicas: [{ model: "demo" }] };
    expect(await desiredIn()).toBeNull();
    state.placementLease = 5;
    expect(await desiredIn()).toEqual({ lease_number: 5, generation: 3, replicas: [{ model: "demo" }] });
    state.desired = null;
    expect(await desiredIn()).toBeNull();
  });

  it.each([
    ["an unknown token", send(report, "sk-host-bad"), 401],
    ["another host's name", send({ ...report, host: "gpu-2" }), 403],
    ["a newer protocol", send({ ...report, protocol: 2 }), 400],
    ["plain HTTP off loopback", send({ ...report, url: "http://10.0.0.5:8090" }), 400],
    ["the same in capitals", send({ ...report, url: "HTTP://10.0.0.5:8090" }), 400],
    ["an address that is no HTTP", send({ ...report, url: "file:///etc/passwd" }), 400],
    ["a report of the wrong shape", send({ ...report, epoch: "x" }), 400],
  ])("refuses %s", async (_what, request, status) => {
    const { deps, reports } = fakeEdge();
    expect((await createAgentApp(deps).request("/agent/v1/reports", request)).status).toBe(status);
    expect(reports).toEqual([]);
  });

  it("keeps reports and metrics off the public listener", async () => {
    const app = createApp(fakeEdge().deps);
    expect((await app.request("/agent/v1/reports", send(report))).status).toBe(404);
    expect((await app.request("/metrics")).status).toBe(404);
  });

  it("takes reports on the admin listener only where there is none of their own", async () => {
    const { deps } = fakeEdge();
    const withReports = createAdminApp(deps, { takesReports: true });
    expect((await withReports.request("/agent/v1/reports", send(report))).status).toBe(200);
    const without = createAdminApp(deps, { takesReports: false });
    expect((await without.request("/agent/v1/reports", send(report))).status).toBe(404);
  });

  it("serves metrics as Prometheus text, made-up model names folded into one series", async () => {
    const { deps } = fakeEdge();
    const app = createApp(deps);
    for (const model of ["a\\", 'b"', "c\nd"])
      await app.request("/v1/chat/completions", send({ model, messages: [{ role: "user", content: "x" }] }, GOOD_KEY));
    const response = await createMetricsApp(deps).request("/metrics");
    expect(response.headers.get("content-type")).toContain("version=0.0.4");
    const text = await response.text();
    expect(text).toContain('steerage_requests_total{model="unknown",outcome="refused"} 3');
    expect(text).toMatch(/^steerage_requests_in_flight 0$/m);
  });
});
