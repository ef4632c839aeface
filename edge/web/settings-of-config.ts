import type { VerdictCacheSettings } from "../accounts/verdict-cache.ts";
import { DEFAULT_ADMISSION_SETTINGS, type AdmissionSettings, type BandSettings } from "../admission/settings.ts";
import { ceilingOf, type EdgeConfig } from "../config.ts";
import { BUILT_IN_PROFILE, profileSchema, profilesWithBuiltIn, type RoutingProfile } from "../config/profiles.ts";
import type { HttpSettings } from "../deps.ts";
import type { IdempotencySettings } from "../dispatch/idempotency/answer-keeper.ts";
import { DEFAULT_DISPATCH_SETTINGS, type DispatchPolicy, type DispatchSettings } from "../dispatch/settings.ts";
import type { ScrapeSettings } from "../fleet/endpoint-scraper.ts";
import type { FleetSettings, ModelNote } from "../fleet/settings.ts";
import type { LimitDefaults } from "../limits/account-limits.ts";
import type { Price } from "../ports/ledger.ts";
import { NO_SCOPE_LIMITS, type ScopeLimits } from "../ports/limits.ts";
import type { Principal } from "../ports/principal.ts";
import type { StoredPrice } from "../ports/usage-store.ts";
import { fallbackOrders } from "../routing/fallbacks.ts";
import type { PoolPolicy } from "../routing/policy.ts";
import { LEDGER_WAITS, type LedgerSettings } from "../usage/journaled-ledger.ts";

/** How often hosts should report. */
const REPORT_EVERY_MS = 1_000;
/** Hosts silent for longer serve nothing any more (`control.lost_after` of the design). */
const LOST_AFTER_MS = 300_000;
/** Load alone is told to the pools at most this often. */
const PUSH_EVERY_MS = 100;
/** Where requests have no total time limit. */
const LONGEST_RESERVATION_MS = 24 * 3_600_000;
const DRAIN_RETRY_AFTER_SECONDS = 5;

/** What the rooms need of the configuration, in their own words. Both runtimes start from here. */
export function httpSettings(config: EdgeConfig): HttpSettings {
  const { admission, max_body_bytes } = config.router;
  return {
    edge: config.name,
    maxBodyBytes: max_body_bytes,
    bands: admission.bands.map(({ name, priority }) => ({ name, priority })),
    defaultBand: admission.default_band,
    bandHeader: admission.band_header,
    sessionHeader: config.router.session_header,
    insecure: config.insecure,
    drainRetryAfterSeconds: DRAIN_RETRY_AFTER_SECONDS,
  };
}

export function admissionSettings({ router, control, models }: EdgeConfig): AdmissionSettings {
  return {
    ...DEFAULT_ADMISSION_SETTINGS,
    staleAfterMs: router.stale_after,
    unreachableAfterMs: control.unreachable_after,
    targetWaiting: router.scoring.target_waiting,
    targetInFlight: router.scoring.target_inflight ?? null,
    kvCeiling: router.scoring.kv_ceiling,
    sessionLoadFactor: router.scoring.session_load_factor,
    prefix: {
      enabled: router.prefix.enabled,
      maxNodes: router.prefix.max_nodes,
      minMatchBytes: router.prefix.min_match,
      ttlMs: router.prefix.ttl,
      matchRatio: router.prefix.match_ratio,
      balanceAbs: router.prefix.balance_abs,
      balanceRel: router.prefix.balance_rel,
    },
    enabled: router.admission.enabled,
    bands: bandSettings(router.admission),
    noMachineTtlMs: router.admission.queue_ttl_without_replica,
    failureThreshold: router.failure_threshold,
    cooldownMs: router.cooldown,
    policy: policyOf(router, router.default_profile, {}),
    policies: Object.fromEntries(
      models.map(({ name, routing_profile, slo }) => [
        name,
        policyOf(router, routing_profile ?? router.default_profile, slo),
      ]),
    ),
  };
}

function profileOf({ profiles }: EdgeConfig["router"], name: string): RoutingProfile {
  const all = profilesWithBuiltIn(profiles);
  // That it exists was checked when the file was read.
  return all[name] ?? all[BUILT_IN_PROFILE] ?? profileSchema.parse({});
}

function policyOf(router: EdgeConfig["router"], name: string, slo: EdgeConfig["models"][number]["slo"]): PoolPolicy {
  const { load, kv, slo: sloWeight, affinity } = profileOf(router, name);
  return {
    weights: { load, kv, slo: sloWeight },
    affinity,
    slo: { ttftMs: slo.ttft_p99 ?? null, tpotMs: slo.tpot_p99 ?? null },
  };
}

/** Waits of bands of these names, where nothing is said; other bands wait as the default one does. */
const WAITS: ReadonlyMap<string, { readonly ttlMs: number; readonly promiseMs: number }> = new Map([
  ["interactive", { ttlMs: 30_000, promiseMs: 5_000 }],
  ["bulk", { ttlMs: 300_000, promiseMs: 120_000 }],
]);
const OTHER_WAITS = { ttlMs: 60_000, promiseMs: 30_000 };

function bandSettings(admission: EdgeConfig["router"]["admission"]): readonly BandSettings[] {
  return admission.bands.map((band) => {
    const waits = WAITS.get(band.name) ?? OTHER_WAITS;
    const queueTtlMs = band.queue_ttl ?? admission.queue_ttl ?? waits.ttlMs;
    return {
      name: band.name,
      priority: band.priority,
      saturationCeiling: band.saturation_ceiling ?? ceilingOf(band.name),
      queueTtlMs: queueTtlMs === 0 ? Infinity : queueTtlMs,
      queueCapacityRequests: band.queue_capacity ?? admission.queue_capacity_per_band,
      queueCapacityBytes: band.queue_bytes ?? admission.queue_capacity_bytes,
      maxWaitMs: band.max_wait ?? (queueTtlMs === 0 ? waits.promiseMs : Math.min(waits.promiseMs, queueTtlMs / 2)),
      trickleShare: band.trickle_share,
    };
  });
}

export function fleetSettings({ name, endpoints, models, control }: EdgeConfig): FleetSettings {
  const orders = fallbackOrders(models);
  return {
    edge: name,
    reportEveryMs: REPORT_EVERY_MS,
    unreachableAfterMs: control.unreachable_after,
    lostAfterMs: LOST_AFTER_MS,
    pushEveryMs: PUSH_EVERY_MS,
    endpoints: endpoints.map((endpoint) => ({
      id: endpoint.id,
      url: endpoint.url,
      models: endpoint.models,
      pool: endpoint.pool ?? null,
      weight: endpoint.weight,
      priority: endpoint.priority,
      slots: endpoint.slots,
      engine: endpoint.engine,
      labels: endpoint.labels,
    })),
    models: Object.fromEntries(models.map((model) => [model.name, noteOf(model, orders.get(model.name) ?? [])])),
  };
}

function noteOf(model: EdgeConfig["models"][number], fallbacks: readonly string[]): ModelNote {
  const declared = Object.entries(model.capabilities);
  return {
    aliases: model.aliases,
    description: model.description ?? null,
    contextLength: model.context_length ?? null,
    maxOutput: model.max_output ?? null,
    fallbacks,
    nodeSelector: model.node_selector,
    can: declared.flatMap(([name, isSo]) => (isSo === true ? [name] : [])),
    lacks: declared.flatMap(([name, isSo]) => (isSo === false ? [name] : [])),
  };
}

/** How the metrics pages of static endpoints are read. */
export function scrapeSettings({ router }: EdgeConfig): ScrapeSettings {
  return { everyMs: router.scrape_interval, timeoutMs: router.scrape_timeout };
}

/** `secret` reads an environment variable; an endpoint whose variable is not set is a fault of the operator. */
export function dispatchSettings(
  config: EdgeConfig,
  options: { readonly priceVersion: number; readonly secret: (name: string) => string | undefined },
): DispatchSettings {
  const { timeouts, inject_usage } = config.router;
  const policies = new Map(config.models.map((model) => [model.name, dispatchPolicy(config, model)]));
  const usual = dispatchPolicy(config, null);
  const keys = new Map<string, string>();
  for (const { id, api_key_env } of config.endpoints) {
    const key = api_key_env === undefined ? undefined : options.secret(api_key_env);
    if (key !== undefined && key !== "") keys.set(id, key);
  }
  return {
    ...DEFAULT_DISPATCH_SETTINGS,
    policyOf: (model) => policies.get(model) ?? usual,
    injectUsage: inject_usage,
    withoutMachineMs: config.router.admission.queue_ttl_without_replica,
    timeouts: {
      dialMs: timeouts.dial,
      responseHeaderMs: timeouts.response_header,
      firstTokenMs: timeouts.first_token,
      idleMs: timeouts.idle,
      generationMs: timeouts.generation,
      totalMs: timeouts.total,
      clientStallMs: timeouts.client_stall,
    },
    keepAliveMs: config.router.keep_alive,
    priceOf: (model) => ({ price: priceOf(config, model), priceVersion: options.priceVersion }),
    endpointKey: (id) => keys.get(id) ?? null,
  };
}

function dispatchPolicy({ router }: EdgeConfig, model: EdgeConfig["models"][number] | null): DispatchPolicy {
  const { retries, hedging } = profileOf(router, model?.routing_profile ?? router.default_profile);
  return { retries: retries ?? router.retries, hedging, sloTtftMs: model?.slo.ttft_p99 ?? null };
}

/** Endpoints whose `api_key_env` names a variable that is not set. */
export function missingSecrets(config: EdgeConfig, secret: (name: string) => string | undefined): readonly string[] {
  return config.endpoints.flatMap(({ id, api_key_env }) =>
    api_key_env === undefined || (secret(api_key_env) ?? "") !== "" ? [] : [`${id}: ${api_key_env}`],
  );
}

type ConfiguredPrice = EdgeConfig["auth"]["default_price"];

export function priceOf({ auth }: EdgeConfig, model: string): Price {
  return priceFrom(Object.hasOwn(auth.pricing, model) ? auth.pricing[model] : undefined, auth.default_price);
}

/** The whole list, for its version number. */
export function priceList({ auth }: EdgeConfig): readonly StoredPrice[] {
  return [
    { model: null, ...priceFrom(undefined, auth.default_price) },
    ...Object.entries(auth.pricing).map(([model, price]) => ({ model, ...priceFrom(price, auth.default_price) })),
  ];
}

function priceFrom(own: ConfiguredPrice | undefined, fallback: ConfiguredPrice): Price {
  const { prompt_per_1k, completion_per_1k, cached_per_1k } = own ?? fallback;
  return {
    promptPer1k: prompt_per_1k,
    completionPer1k: completion_per_1k,
    cachedPer1k: cached_per_1k ?? prompt_per_1k,
  };
}

/** Rates of 0 lift the defaults too. */
const NO_LIMITS: ScopeLimits = { ...NO_SCOPE_LIMITS, requestsPerMinute: 0, tokensPerMinute: 0 };

/** Who everybody is where `auth.enabled` is false. */
export function everybodyOf({ auth }: EdgeConfig): Principal | null {
  if (auth.enabled) return null;
  return {
    account: "local",
    project: "local",
    keyId: "everybody",
    highestBand: null,
    keyLimits: NO_LIMITS,
    projectLimits: NO_LIMITS,
    accountLimits: NO_LIMITS,
  };
}

/** `reservationTtlMs` outlasts any request. */
export function limitDefaults({ auth, router }: EdgeConfig): LimitDefaults {
  const longestMs = router.timeouts.total === 0 ? LONGEST_RESERVATION_MS : router.timeouts.total;
  return {
    requestsPerMinute: auth.default_rpm,
    tokensPerMinute: auth.default_tpm,
    reservationTtlMs: longestMs + DEFAULT_DISPATCH_SETTINGS.reportWaitMs + 60_000,
  };
}

export function ledgerSettings({ auth }: EdgeConfig): LedgerSettings {
  const { flush_interval: flushIntervalMs, batch_size: batchSize, buffer_size: bufferSize } = auth;
  return { flushIntervalMs, batchSize, bufferSize, ...LEDGER_WAITS };
}

export function idempotencySettings({ router }: EdgeConfig): IdempotencySettings {
  const { keep, max_answer, max_project_bytes, max_keys_per_project, linger } = router.idempotency;
  return {
    keepMs: keep,
    maxAnswerBytes: max_answer,
    maxProjectBytes: max_project_bytes,
    maxKeysPerProject: max_keys_per_project,
    lingerMs: linger,
    waitMs: router.timeouts.total === 0 ? LONGEST_RESERVATION_MS : router.timeouts.total,
  };
}

/** How many verdicts on keys are kept. */
const MAX_VERDICTS = 10_000;

export function verdictSettings({ auth }: EdgeConfig): VerdictCacheSettings {
  return {
    cacheTtlMs: auth.cache_ttl,
    negativeTtlMs: auth.negative_ttl,
    staleIfErrorMs: auth.stale_if_error,
    maxEntries: MAX_VERDICTS,
  };
}
