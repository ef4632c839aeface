import { z } from "zod";
import { duration, optionalDuration, optionalSize, size } from "../shared/config/units.ts";
import { modelFaults, modelSchema } from "./config/models.ts";
import { BUILT_IN_PROFILE, profilesSchema, profilesWithBuiltIn } from "./config/profiles.ts";
import { SCRAPED_ENGINES } from "./fleet/scraped-load.ts";
import { LOG_LEVELS } from "../shared/logging/logger.ts";

/** What environment names of the edge start with: `STEERAGE_AUTH__DEFAULT_RPM`. */
export const EDGE_ENVIRONMENT_PREFIX = "STEERAGE_";

const count = z.int().min(0);

/** `host:port`, `[::1]:port` or `:port` (every interface); port 0 takes a free one. */
const LISTEN = /^(?:\[[0-9a-fA-F:.]+\]|[^:[\]\s]*):\d{1,5}$/;
const listen = z.string().refine((text) => text === "" || (LISTEN.test(text) && portOf(text) <= 65_535), {
  error: "must be host:port, such as 127.0.0.1:8080",
});

/** A dollar a token: far above any price, and low enough that no cost leaves what the ledger can hold. */
const perThousand = count.max(1_000_000_000);

const priceSchema = z.strictObject({
  prompt_per_1k: perThousand.default(0).describe("Micro-dollars per 1,000 prompt tokens that were computed."),
  completion_per_1k: perThousand.default(0).describe("Micro-dollars per 1,000 generated tokens."),
  cached_per_1k: perThousand
    .optional()
    .describe("Micro-dollars per 1,000 prompt tokens taken from the cache; as `prompt_per_1k` when not given."),
});

const authSchema = z.strictObject({
  enabled: z
    .boolean()
    .default(true)
    .describe("Whether callers need an API key. Off, every caller is one built-in principal without limits."),
  store: z
    .string()
    .default("")
    .describe("Path of the database file, or a libSQL URL. Empty: `steerage.db` in the data directory."),
  cache_ttl: duration("10s").describe("How long the verdict on a good key is kept."),
  negative_ttl: duration("30s").describe("How long the verdict on a bad key is kept."),
  stale_if_error: duration("24h").describe("How long known keys go on working while the store is away."),
  default_rpm: count.default(600).describe("Requests per minute of keys without a limit of their own; 0 is unlimited."),
  default_tpm: count
    .default(1_000_000)
    .describe("Tokens per minute of keys without a limit of their own; 0 is unlimited."),
  pricing: z.record(z.string(), priceSchema).default({}).describe("Prices by model name."),
  default_price: priceSchema.prefault({}).describe("The price of models that `pricing` does not name."),
  flush_interval: duration("1s").describe("How often the usage journal is written to the database."),
  batch_size: z.int().min(1).default(500).describe("Most usage rows in one transaction."),
  buffer_size: z
    .int()
    .min(1)
    .default(10_000)
    .describe("Most usage rows that wait in memory while the database is away; more of them wait in the journal."),
});

const timeoutsSchema = z.strictObject({
  dial: duration("2s").describe("To get a connection to a replica."),
  response_header: duration("30s").describe("To the response headers of a stream."),
  first_token: duration("60s").describe("From the dispatch of a streamed request to its first token."),
  idle: duration("30s").describe("Between two pieces of a stream."),
  generation: duration("10m").describe("For a whole answer that is not streamed."),
  total: duration("30m").describe("For any request, waiting and retries included."),
  client_stall: duration("60s").describe("How long a client may take nothing of an answer that is ready for it."),
});

const bandSchema = z.strictObject({
  name: z.string().min(1).describe("The band's name, as in `X-Steerage-Band`."),
  priority: z
    .int()
    .default(0)
    .describe("Higher goes first. A wish above a project's highest band is brought down to it."),
  saturation_ceiling: z
    .number()
    .gt(0)
    .optional()
    .describe(
      "The band gets machines while the pool's saturation is below this. Not given: 1.0 for interactive, 0.9 for default, 0.7 for bulk, else 1.0.",
    ),
  queue_ttl: optionalDuration().describe("Longest wait for a replica. Not given: `router.admission.queue_ttl`."),
  queue_capacity: z
    .int()
    .min(1)
    .optional()
    .describe("Most requests waiting in this band of one pool. Not given: `queue_capacity_per_band`."),
  queue_bytes: optionalSize().describe(
    "Most bytes of request bodies waiting in this band of one pool. Not given: `queue_capacity_bytes`.",
  ),
  max_wait: optionalDuration().describe(
    "Once its oldest request has waited this long the band gets its trickle, whatever else waits. Not given: 5s for interactive, 30s for default, 120s for bulk, but at most half of the band's `queue_ttl`.",
  ),
  trickle_share: z
    .number()
    .gt(0)
    .max(1)
    .default(0.1)
    .describe("Share of grants that the band gets at least while its oldest request has waited for `max_wait`."),
});

const DEFAULT_BANDS = [
  { name: "interactive", priority: 100 },
  { name: "default", priority: 50 },
  { name: "bulk", priority: 0 },
];

const BAND_CEILINGS: ReadonlyMap<string, number> = new Map([
  ["default", 0.9],
  ["bulk", 0.7],
]);

/** Of a band that does not say. */
export function ceilingOf(band: string): number {
  return BAND_CEILINGS.get(band) ?? 1;
}

const admissionSchema = z
  .strictObject({
    enabled: z
      .boolean()
      .default(true)
      .describe("Whether requests wait in bands. Off, each goes straight to the best replica, however full that is."),
    bands: z
      .array(bandSchema)
      .min(1)
      .prefault(DEFAULT_BANDS)
      .describe("The bands: interactive, default and bulk when not given."),
    default_band: z.string().default("default").describe("The band of requests that name none."),
    band_header: z.string().default("X-Steerage-Band").describe("The header by which a caller wishes for a band."),
    queue_ttl: optionalDuration().describe(
      "How long a request may wait for a replica, in bands that do not say. Not given: 30s for interactive, 300s for bulk, else 60s.",
    ),
    queue_capacity_per_band: z.int().min(1).default(1_024).describe("Most requests waiting in one band of one pool."),
    queue_capacity_bytes: size("256MiB").describe("Most bytes of request bodies waiting in one band of one pool."),
    queue_ttl_without_replica: duration("10s").describe("How long a request waits when there is no machine at all."),
    interval: optionalDuration().describe(
      "Read for the sake of older files, and without effect: admission acts on events, not on a timer.",
    ),
  })
  .superRefine(({ bands, default_band }, context) => {
    const falling = bands
      .map(({ name, priority, saturation_ceiling }, place) => ({
        place,
        priority,
        ceiling: saturation_ceiling ?? ceilingOf(name),
      }))
      .toSorted((left, right) => right.priority - left.priority);
    falling.forEach(({ place, ceiling }, rank) => {
      if (ceiling > (falling[rank - 1]?.ceiling ?? Infinity))
        context.addIssue({
          code: "custom",
          path: ["bands", place, "saturation_ceiling"],
          message: "is above that of a band of higher priority, which would be held back first",
        });
    });
    duplicates(bands.map(({ name }) => name)).forEach(([name, place]) =>
      context.addIssue({ code: "custom", path: ["bands", place, "name"], message: `'${name}' is named twice` }),
    );
    if (!bands.some(({ name }) => name === default_band))
      context.addIssue({ code: "custom", path: ["default_band"], message: `there is no band '${default_band}'` });
  });

const prefixSchema = z.strictObject({
  enabled: z.boolean().default(true).describe("Whether requests go where the beginning of their prompt was seen."),
  max_nodes: z.int().min(1).default(100_000).describe("Bound of the prefix tree of one pool, nodes."),
  min_match: z.int().min(1).default(256).describe("Shortest match worth acting on, bytes."),
  ttl: duration("10m").describe("How long a prompt is believed to be in a replica's cache."),
  match_ratio: z.number().min(0).max(1).default(0.5).describe("Share of the prompt that must match."),
  balance_abs: z
    .number()
    .min(0)
    .default(32)
    .describe("A replica is too loaded for affinity when it has this many requests more than the least loaded, and"),
  balance_rel: z.number().min(1).default(1.1).describe("also more than this factor of the least loaded's."),
});

const scoringSchema = z.strictObject({
  target_waiting: z.number().gt(0).default(5).describe("Requests waiting inside a replica at which it is full."),
  target_inflight: z
    .number()
    .gt(0)
    .optional()
    .describe("Requests in flight at which a replica is full. Not given: its slots."),
  kv_ceiling: z.number().gt(0).max(1).default(0.9).describe("Share of KV cells in use at which a replica is full."),
  session_load_factor: z
    .number()
    .min(1)
    .default(1.25)
    .describe("A replica gets what it knows only up to this factor of its fair share, or half its slots."),
});

const idempotencySchema = z.strictObject({
  keep: duration("24h").describe("How long a repetition gets the first answer; 0 ignores `Idempotency-Key`."),
  max_answer: size("1MiB").describe(
    "Largest answer that is kept; a larger one is given once, and a repetition is 409.",
  ),
  max_project_bytes: size("64MiB").describe("Kept answers of one project; what is above is given once."),
  max_keys_per_project: z.int().min(1).default(50_000).describe("Keys of one project that are remembered at a time."),
  linger: duration("30s").describe(
    "How long an answer with an `Idempotency-Key` goes on being made after its client left, for the repetition.",
  ),
});

const routerSchema = z.strictObject({
  default_profile: z
    .string()
    .default(BUILT_IN_PROFILE)
    .describe("The routing profile of models that name none. `balanced` is always there, with the defaults below."),
  profiles: profilesSchema.describe("Routing profiles by name: how machines are scored, affinity, hedging, retries."),
  retries: z.int().min(0).max(10).default(2).describe("Further attempts after a failed one, before the first byte."),
  cooldown: duration("30s").describe("How long a replica stays out after repeated failures."),
  failure_threshold: z.int().min(1).default(5).describe("Failures in a row that put a replica out."),
  stale_after: duration("3s").describe("Age from which a load report counts less."),
  max_body_bytes: size("10MiB").describe("Largest request body."),
  inject_usage: z
    .boolean()
    .default(true)
    .describe("Whether replicas are asked for usage in streams when the caller did not ask."),
  timeouts: timeoutsSchema.prefault({}).describe("Time limits of one request."),
  keep_alive: duration("15s").describe(
    "Silence after which a waiting stream gets a comment line, so that nothing on the way takes it for dead; 0 is never.",
  ),
  scrape_interval: duration("1s").describe("How often the metrics pages of static endpoints are read; 0 is never."),
  scrape_timeout: duration("1s").describe("Time for one such page."),
  session_header: z
    .string()
    .min(1)
    .default("X-Steerage-Session")
    .describe("The header by which a caller names its session, whose requests then go to the same replica."),
  prefix: prefixSchema.prefault({}).describe("Routing by what replicas have in their caches."),
  scoring: scoringSchema.prefault({}).describe("When a replica counts as full."),
  admission: admissionSchema.prefault({}).describe("Bands and queues."),
  idempotency: idempotencySchema.prefault({}).describe("Repeated requests with the same `Idempotency-Key`."),
});

const endpointSchema = z
  .strictObject({
    id: z.string().min(1).describe("The endpoint's name in logs and in the ledger."),
    url: z.url({ protocol: /^https?$/ }).describe("Origin; a trailing `/v1` is accepted."),
    models: z.array(z.string().min(1)).min(1).describe("Names of the models it serves."),
    pool: z
      .string()
      .optional()
      .describe(
        "Public name that its models join, so that endpoints that call the same model differently are interchangeable.",
      ),
    weight: z.number().gt(0).default(1).describe("Scales its capacity among those of the same priority."),
    priority: z.int().default(0).describe("Lower is tried first; a higher one only when those below are unavailable."),
    slots: z.int().min(1).default(8).describe("Requests it can work on at the same time."),
    engine: z
      .enum(SCRAPED_ENGINES)
      .default("")
      .describe("Decides what its metrics are called. Empty means vLLM's names."),
    api_key_env: z.string().min(1).optional().describe("Environment variable that holds the key to send there."),
    insecure: z.boolean().default(false).describe("Allows plain HTTP to an address that is not loopback."),
    labels: z
      .record(z.string().min(1), z.string())
      .default({})
      .describe("Labels, for the `node_selector` of models; hosts report theirs."),
  })
  .superRefine(({ url, insecure }, context) => {
    if (insecure || !crossesInTheClear(url)) return;
    context.addIssue({
      code: "custom",
      path: ["url"],
      message: "plain HTTP off loopback is refused; use https, or set insecure: true",
    });
  });

/** The edge's configuration file. Unknown keys are refused, so that a typing error cannot pass for a setting. */
export const edgeConfigSchema = z
  .strictObject({
    name: z
      .string()
      .regex(/^[A-Za-z0-9._-]{1,64}$/, { error: "1 to 64 letters, digits, dots, dashes or underscores" })
      .default("edge")
      .describe("The edge's name: the issuer of its tokens to hosts."),
    listen: listen.default("127.0.0.1:8080").describe("Address of the public API; port 0 takes a free one."),
    admin_listen: listen
      .default("127.0.0.1:8081")
      .describe("Address of the operators' dashboard, health and metrics. Empty: off."),
    metrics_listen: listen.default("").describe("Address of the metrics alone. Empty: only on `admin_listen`."),
    agent_listen: listen.default("").describe("Address to which hosts report. Empty: on `admin_listen`."),
    data: z
      .string()
      .default(".steerage")
      .describe("Directory of journal, keys and database; relative to the file's own folder."),
    insecure: z
      .boolean()
      .default(false)
      .describe("Allows plain HTTP between edge and hosts off loopback, for trusted networks."),
    drain_timeout: duration("30s").describe("How long running requests may go on after SIGTERM."),
    auth: authSchema.prefault({}).describe("API keys, limits, prices and the usage journal."),
    router: routerSchema.prefault({}).describe("Choice of replicas, retries and time limits."),
    control: z
      .strictObject({
        unreachable_after: duration("10s").describe("Silence after which a host gets no new work while others exist."),
        lease_ttl: duration("15s")
          .refine((ms) => ms >= 3_000, { error: "must be 3s or more" })
          .describe(
            "How long an edge that has died, or is cut off from the database, keeps its name, its placement and its slices of shared rates.",
          ),
      })
      .prefault({})
      .describe("Judging hosts."),
    logging: z
      .strictObject({
        level: z.enum(LOG_LEVELS).default("info").describe("Least important level that is written."),
        format: z.enum(["console", "json"]).default("console").describe("One line each, for people or for machines."),
      })
      .prefault({})
      .describe("The log, on standard error."),
    models: z.array(modelSchema).default([]).describe("What callers are told about models beyond what hosts report."),
    endpoints: z.array(endpointSchema).default([]).describe("Static OpenAI-compatible servers."),
  })
  .superRefine((config, context) => {
    duplicates(config.endpoints.map(({ id }) => id)).forEach(([id, place]) =>
      context.addIssue({ code: "custom", path: ["endpoints", place, "id"], message: `'${id}' is named twice` }),
    );
    const names = config.models.flatMap(({ name, aliases }, place) =>
      [name, ...aliases].map((text) => ({ text, place })),
    );
    duplicates(names.map(({ text }) => text)).forEach(([text, at]) =>
      context.addIssue({
        code: "custom",
        path: ["models", names[at]?.place ?? 0],
        message: `the name '${text}' is used twice`,
      }),
    );
    for (const { path, message } of [...modelFaults(config.models), ...profileFaults(config), ...loopFaults(config)])
      context.addIssue({ code: "custom", path, message });
  });

export type EdgeConfig = z.output<typeof edgeConfigSchema>;
/** As written in a file, before defaults. */
export type EdgeConfigInput = z.input<typeof edgeConfigSchema>;

interface Fault {
  readonly path: (string | number)[];
  readonly message: string;
}

/** Profiles that are named and do not exist. */
function profileFaults({ router, models }: Pick<EdgeConfig, "router" | "models">): readonly Fault[] {
  const names = Object.keys(profilesWithBuiltIn(router.profiles));
  const named = [
    { path: ["router", "default_profile"], name: router.default_profile },
    ...models.map(({ routing_profile }, place) => ({
      path: ["models", place, "routing_profile"],
      name: routing_profile ?? router.default_profile,
    })),
  ];
  return named
    .filter(({ name }) => !names.includes(name))
    .map(({ path, name }) => ({ path, message: `there is no profile '${name}'; there are: ${names.join(", ")}` }));
}

/** Endpoints that are this edge itself, which would ask itself for ever. */
function loopFaults({ endpoints, listen: own }: Pick<EdgeConfig, "endpoints" | "listen">): readonly Fault[] {
  const port = portOf(own);
  const name = own.slice(0, own.lastIndexOf(":")).toLowerCase();
  const isEvery = ["", "0.0.0.0", "[::]"].includes(name);
  return endpoints.flatMap(({ url }, place) => {
    const { hostname, port: urlPort, protocol } = new URL(url);
    const samePort = port !== 0 && Number(urlPort || (protocol === "https:" ? 443 : 80)) === port;
    const sameHost = hostname === name || ((isEvery || isLoopbackUrl(`http://${name}`)) && isLoopbackUrl(url));
    return samePort && sameHost ? [{ path: ["endpoints", place, "url"], message: "is this edge's own address" }] : [];
  });
}

/** Plain HTTP to another machine, however the scheme is written. */
export function crossesInTheClear(url: string): boolean {
  return new URL(url).protocol === "http:" && !isLoopbackUrl(url);
}

/** Loopback by name or address; `*.localhost` is loopback by RFC 6761. */
export function isLoopbackUrl(url: string): boolean {
  const host = new URL(url).hostname.toLowerCase();
  return host === "localhost" || host.endsWith(".localhost") || host === "[::1]" || /^127\.\d+\.\d+\.\d+$/.test(host);
}

function portOf(address: string): number {
  return Number(address.slice(address.lastIndexOf(":") + 1));
}

/** Each repeated name with the place of its repetition. */
function duplicates(names: readonly string[]): (readonly [string, number])[] {
  return names.flatMap((name, place) => (names.indexOf(name) < place ? [[name, place] as const] : []));
}
