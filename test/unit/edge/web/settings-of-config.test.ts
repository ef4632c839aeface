import { NO_SCOPE_LIMITS } from "../../../../edge/ports/limits.ts";
import { describe, expect, it } from "vitest";
import { edgeConfigSchema, type EdgeConfigInput } from "../../../../edge/config.ts";
import * as settings from "../../../../edge/web/settings-of-config.ts";
import { readConfig } from "../../../../shared/config/read-config.ts";

const configOf = (document: EdgeConfigInput) => readConfig(edgeConfigSchema, document, "test");
const none = () => undefined;
const secret = (name: string) => (name === "A_KEY" ? "secret" : undefined);

describe("prices", () => {
  const config = configOf({
    auth: {
      default_price: { prompt_per_1k: 2, completion_per_1k: 3 },
      pricing: { a: { prompt_per_1k: 10, completion_per_1k: 20, cached_per_1k: 0 }, b: { completion_per_1k: 5 } },
    },
  });

  it("are the model's own, else the default", () => {
    expect(settings.priceOf(config, "a")).toEqual({ promptPer1k: 10, completionPer1k: 20, cachedPer1k: 0 });
    expect(settings.priceOf(config, "other")).toEqual({ promptPer1k: 2, completionPer1k: 3, cachedPer1k: 2 });
  });

  it("charge cached tokens like computed ones where nothing is said of them", () => {
    expect(settings.priceOf(config, "b")).toEqual({ promptPer1k: 0, completionPer1k: 5, cachedPer1k: 0 });
  });

  it("are not found for names that every object has", () => {
    expect(settings.priceOf(config, "constructor")).toEqual(settings.priceOf(config, "other"));
  });

  it("make one list with the default first, for its version number", () => {
    expect(settings.priceList(config).map(({ model }) => model)).toEqual([null, "a", "b"]);
  });
});

describe("settings of the rooms", () => {
  it("carry the configuration's times and bounds", () => {
    const config = configOf({
      router: { retries: 1, timeouts: { idle: "7s" }, stale_after: "1s", admission: { queue_ttl: "3s" } },
      control: { unreachable_after: "9s" },
    });
    expect(settings.admissionSettings(config)).toMatchObject({
      staleAfterMs: 1_000,
      unreachableAfterMs: 9_000,
      bands: [
        { name: "interactive", priority: 100, saturationCeiling: 1, queueTtlMs: 3_000, maxWaitMs: 1_500 },
        { name: "default", priority: 50, saturationCeiling: 0.9, queueTtlMs: 3_000, maxWaitMs: 1_500 },
        { name: "bulk", priority: 0, saturationCeiling: 0.7, queueTtlMs: 3_000, maxWaitMs: 1_500 },
      ],
      noMachineTtlMs: 10_000,
    });
    const dispatch = settings.dispatchSettings(config, { priceVersion: 4, secret: none });
    expect(dispatch.policyOf("m")).toEqual({ retries: 1, hedging: false, sloTtftMs: null });
    expect(dispatch).toMatchObject({
      injectUsage: true,
      timeouts: { idleMs: 7_000, dialMs: 2_000, totalMs: 1_800_000 },
    });
  });

  it("give each model its profile and its promise, and others the default profile", () => {
    const config = configOf({
      router: {
        default_profile: "plain",
        profiles: { plain: { affinity: false, slo: 0, retries: 0 }, quick: { hedging: true, load: 2 } },
      },
      models: [
        { name: "a", routing_profile: "quick", slo: { ttft_p99: "400ms" } },
        { name: "b", routing_profile: "balanced", slo: { tpot_p99: "40ms" } },
      ],
    });
    const { policy, policies } = settings.admissionSettings(config);
    expect(policy).toEqual({
      weights: { load: 1, kv: 1, slo: 0 },
      affinity: false,
      slo: { ttftMs: null, tpotMs: null },
    });
    expect(policies).toMatchObject({
      a: { weights: { load: 2, kv: 1, slo: 1 }, affinity: true, slo: { ttftMs: 400, tpotMs: null } },
      b: { weights: { load: 1, kv: 1, slo: 1 }, slo: { ttftMs: null, tpotMs: 40 } },
    });
    const { policyOf } = settings.dispatchSettings(config, { priceVersion: 4, secret: none });
    expect(policyOf("a")).toEqual({ retries: 2, hedging: true, sloTtftMs: 400 });
    expect(policyOf("b")).toEqual({ retries: 2, hedging: false, sloTtftMs: null });
    expect(policyOf("unknown")).toEqual({ retries: 0, hedging: false, sloTtftMs: null });
  });

  it("tell the fleet who stands in for whom, where a model may run and what it can do", () => {
    const config = configOf({
      models: [
        { name: "a", fallbacks: ["b"], node_selector: { zone: "eu" }, capabilities: { vision: true, tools: false } },
        { name: "b", fallbacks: ["c"] },
      ],
      endpoints: [{ id: "e", url: "http://127.0.0.1:9", models: ["a"], labels: { zone: "eu" } }],
    });
    const fleet = settings.fleetSettings(config);
    expect(fleet.models["a"]).toMatchObject({
      fallbacks: ["b", "c"],
      nodeSelector: { zone: "eu" },
      can: ["vision"],
      lacks: ["tools"],
    });
    expect(fleet.models["b"]).toMatchObject({ fallbacks: ["c"], nodeSelector: {}, can: [], lacks: [] });
    expect(fleet.endpoints[0]?.labels).toEqual({ zone: "eu" });
  });

  it("let each band wait as the design says where nothing is said", () => {
    expect(settings.admissionSettings(configOf({})).bands).toMatchObject([
      { queueTtlMs: 30_000, maxWaitMs: 5_000, queueCapacityRequests: 1_024, queueCapacityBytes: 2 ** 28 },
      { queueTtlMs: 60_000, maxWaitMs: 30_000 },
      { queueTtlMs: 300_000, maxWaitMs: 120_000, trickleShare: 0.1 },
    ]);
  });

  it("keep a reservation longer than any request may take", () => {
    for (const total of ["1s", "0"]) {
      const config = configOf({ router: { timeouts: { total } } });
      expect(settings.limitDefaults(config).reservationTtlMs).toBeGreaterThan(config.router.timeouts.total + 60_000);
    }
  });

  it("take an endpoint's key from the environment and name those that are missing", () => {
    const endpoint = { url: "http://127.0.0.1:1", models: ["m"] };
    const config = configOf({
      endpoints: [
        { ...endpoint, id: "a", api_key_env: "A_KEY" },
        { ...endpoint, id: "b", api_key_env: "B_KEY" },
        { ...endpoint, id: "c" },
      ],
    });
    const { endpointKey } = settings.dispatchSettings(config, { priceVersion: 1, secret });
    expect(["a", "b", "c"].map(endpointKey)).toEqual(["secret", null, null]);
    expect(settings.missingSecrets(config, secret)).toEqual(["b: B_KEY"]);
  });

  it("make everybody one principal without limits only where keys are switched off", () => {
    expect(settings.everybodyOf(configOf({}))).toBeNull();
    expect(settings.everybodyOf(configOf({ auth: { enabled: false } }))).toMatchObject({
      keyLimits: { ...NO_SCOPE_LIMITS, requestsPerMinute: 0, tokensPerMinute: 0 },
      projectLimits: { ...NO_SCOPE_LIMITS, requestsPerMinute: 0, tokensPerMinute: 0 },
      accountLimits: { ...NO_SCOPE_LIMITS, requestsPerMinute: 0, tokensPerMinute: 0 },
    });
  });
});
