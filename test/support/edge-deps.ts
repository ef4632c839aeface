import { MemoryLimits } from "../../edge/limits/limits.memory.ts";
import { NO_SCOPE_LIMITS } from "../../edge/ports/limits.ts";
import { ApiError } from "../../shared/errors/api-error.ts";
import { createLogger } from "../../shared/logging/logger.ts";
import type { EdgeDeps, Respond } from "../../edge/deps.ts";
import type { InferenceRequest } from "../../edge/dispatch/inference-request.ts";
import type { SaeCall } from "../../edge/dispatch/sae-calls.ts";
import { EdgeMetrics } from "../../edge/monitoring/edge-metrics.ts";
import type { DesiredState, ServedModel } from "../../edge/ports/fleet.ts";
import type { Principal } from "../../edge/ports/principal.ts";
import type { AskedAttempt } from "../../shared/protocol/answer.ts";
import type { Report } from "../../shared/protocol/report.ts";
import { ManualClock } from "./manual-clock.ts";

export const GOOD_KEY = "sk-st-goodgoodgood-0000000000000000000000000000000000000000000";
export const HOST_TOKEN = "sk-host-good";

export const PRINCIPAL: Principal = {
  account: "acme",
  project: "search",
  keyId: "goodgoodgood",
  highestBand: "default",
  keyLimits: NO_SCOPE_LIMITS,
  projectLimits: NO_SCOPE_LIMITS,
  accountLimits: NO_SCOPE_LIMITS,
};

export const MODEL: ServedModel = {
  id: "org/storyteller:q8",
  pool: "org/storyteller:q8",
  aliases: ["tell"],
  description: "Tells <short> stories",
  contextLength: 512,
  maxOutput: 256,
  capabilities: ["chat", "completions"],
  saes: [{ id: "sae-1", digest: "00", layer: 1, hook_point: "blocks.1.hook_resid_post", d_sae: 512 }],
  readyReplicas: 1,
  failure: null,
  sinceMs: 1_700_000_000_999,
};

export interface FakeEdge {
  readonly deps: EdgeDeps;
  /** What reached dispatch. */
  readonly dispatched: InferenceRequest[];
  /** What was asked of replicas about SAEs. */
  readonly saeCalls: SaeCall[];
  readonly reports: Report[];
  readonly log: string[];
  readonly state: {
    draining: boolean;
    store: "ok" | "away";
    models: ServedModel[];
    settling: boolean;
    desired: DesiredState | null;
    placementLease: number | null;
    asked: AskedAttempt[];
  };
}

/** Answers whole through a collected writer, as a runtime would. */
const respondWhole: Respond = async (_exchange, run) => {
  let status = 0;
  let headers: Record<string, string> = {};
  let text = "";
  let started = false;
  await run({
    start(given, names) {
      started = true;
      status = given;
      headers = { ...names };
    },
    get started() {
      return started;
    },
    write(chunk) {
      text += typeof chunk === "string" ? chunk : new TextDecoder().decode(chunk);
      return true;
    },
    end: () => undefined,
    destroy: () => undefined,
    onDrain: () => undefined,
    onClosed: () => undefined,
    closed: false,
  });
  return new Response(text, { status, headers });
};

/** Everything that `createApp` needs, with a fleet of one model and a dispatch that answers at once. */
export function fakeEdge(): FakeEdge {
  const clock = new ManualClock();
  const dispatched: InferenceRequest[] = [];
  const saeCalls: SaeCall[] = [];
  const reports: Report[] = [];
  const log: string[] = [];
  const state: FakeEdge["state"] = {
    draining: false,
    store: "ok",
    models: [MODEL],
    settling: false,
    desired: null,
    placementLease: null,
    asked: [],
  };
  let seed = 0;
  const deps: EdgeDeps = {
    clock,
    logger: createLogger({ level: "debug", format: "json", clock, write: (line) => log.push(line) }),
    randomBytes: (length) => Uint8Array.from({ length }, () => (seed = (seed * 31 + 7) % 248)),
    settings: {
      edge: "test-edge",
      maxBodyBytes: 2_000,
      bands: [
        { name: "interactive", priority: 100 },
        { name: "default", priority: 50 },
        { name: "bulk", priority: 0 },
      ],
      defaultBand: "default",
      sessionHeader: "X-Steerage-Session",
      bandHeader: "X-Steerage-Band",
      insecure: false,
      drainRetryAfterSeconds: 5,
    },
    authenticator: {
      authenticate: (credential) =>
        credential === GOOD_KEY ? Promise.resolve(PRINCIPAL) : Promise.reject(new ApiError("invalid_api_key")),
    },
    everybody: null,
    hostAuthenticator: {
      authenticateHost: (token) =>
        token === HOST_TOKEN ? Promise.resolve("gpu-1") : Promise.reject(new ApiError("host_unauthorized")),
    },
    fleet: {
      accept(report) {
        reports.push(report);
        return Promise.resolve({ ack_seq: report.seq, report_every_ms: 1_000, desired: state.desired });
      },
      models: () => Promise.resolve(state.models),
      resolve: (name) =>
        Promise.resolve(state.models.find(({ id, aliases }) => id === name || aliases.includes(name)) ?? null),
      unreachable: () => Promise.resolve(false),
      hosts: () => Promise.resolve([]),
      settling: () => Promise.resolve(state.settling),
    },
    limits: new MemoryLimits(clock, { requestsPerMinute: 600, tokensPerMinute: 0, reservationTtlMs: 600_000 }),
    ledger: {
      acceptReport: (_host, ended) => ended.map(({ request_id, attempt }) => ({ request_id, attempt })),
      askedOf: () => state.asked,
    },
    signer: {
      publicKeys: () => [{ kty: "OKP", crv: "Ed25519", x: "public", kid: "k1" }],
      signAnswer: (claims) => Promise.resolve(JSON.stringify(claims)),
    },
    placementLease: () => state.placementLease,
    callSae: (call) => {
      saeCalls.push(call);
      const body = new TextEncoder().encode(JSON.stringify({ object: "sae", id: call.saeId }));
      return Promise.resolve({ status: 200, headers: { "content-type": "application/json" }, body });
    },
    dispatch: {
      run(request, writer) {
        dispatched.push(request);
        writer.start(200, { "Content-Type": "application/json" });
        writer.write('{"answer":true}');
        writer.end();
        return Promise.resolve();
      },
    },
    priceOf: () => ({ promptPer1k: 3, completionPer1k: 9, cachedPer1k: 1 }),
    metrics: new EdgeMetrics(),
    metricsSources: {
      coordinator: { stats: () => Promise.resolve([]) },
      fleet: { hosts: () => Promise.resolve([]) },
    },
    draining: () => state.draining,
    storeState: () => Promise.resolve(state.store),
    respond: respondWhole,
  };
  return { deps, dispatched, saeCalls, reports, log, state };
}
