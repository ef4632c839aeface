/**
 * Where every key of llmgw's configuration went, by its block and name there: honoured under that name, or replaced and
 * why. Read by the generator of CONFIG.md and by the message about a key that is not known here.
 */
export interface LlmgwKey {
  readonly block: string;
  readonly name: string;
  /** Whose file has its place now. */
  readonly file: "edge" | "host" | null;
  /** Path in that file; null where nothing has taken its place. */
  readonly path: string | null;
  /** Null: the same meaning. */
  readonly note: string | null;
}

type Row = readonly [name: string, place: string | null, note?: string];

/** The key has its old name in the block that took the old block's place. */
const SAME = "=";

const edge = (block: string, prefix: string, rows: readonly Row[]): readonly LlmgwKey[] =>
  keys("edge", block, prefix, rows);
const host = (block: string, prefix: string, rows: readonly Row[]): readonly LlmgwKey[] =>
  keys("host", block, prefix, rows);

function keys(file: "edge" | "host", block: string, prefix: string, rows: readonly Row[]): readonly LlmgwKey[] {
  return rows.map(([name, place, note]) => ({
    block,
    name,
    file: place === null ? null : file,
    path: place === null ? null : `${prefix}${place === SAME ? name : place}`,
    note: note ?? null,
  }));
}

const same = (...names: readonly string[]): readonly Row[] => names.map((name) => [name, SAME]);

const PLACED_BY_HAND =
  "a host serves the models of its own file; nothing is placed from here, so nothing needs to be chosen for it";
const HISTORY = "the metrics are for the monitoring that an operator has; its pages draw the history";
const NO_PAGES = "the landing page says what is served and how to ask, and has no text of its own";
const NO_FETCH = "weights are files that the operator puts there; nothing is downloaded";

export const LLMGW_KEYS: readonly LlmgwKey[] = [
  ...edge("Server", "", [
    ...same("listen", "admin_listen", "metrics_listen", "agent_listen", "auth", "router", "control", "models"),
    ["endpoints", "endpoints", "read always, also beside hosts that report"],
    ["agent_tls", null, "a proxy or `insecure: true` on a trusted network; hosts pin the edge's key by fingerprint"],
    ["threads", null, "no conversations are kept: prompts and answers are written nowhere"],
    ["landing", null, NO_PAGES],
    ["monitoring", null, HISTORY],
    ["mirror", null, NO_FETCH],
  ]),
  ...edge("Auth", "auth.", [
    ...same("enabled"),
    ["store", "store", "empty is `steerage.db` in `data`; a libSQL URL is a database that several edges share"],
    [
      "cache_ttl",
      "cache_ttl",
      "a revoked key stops within a second or two all the same: edges poll the keys' revision",
    ],
    ...same("negative_ttl", "default_rpm", "default_tpm", "pricing", "default_price", "flush_interval", "batch_size"),
    ["buffer_size", "buffer_size", "what is beyond it waits in the journal on disk; no record is dropped"],
    ["signup_open", null, "keys are made with `steerage keys create`; there is no sign-up form"],
  ]),
  ...edge("Price", "auth.pricing.*.", same("prompt_per_1k", "completion_per_1k")),
  ...edge("Router", "router.", [
    ...same("scrape_interval", "scrape_timeout", "stale_after", "retries", "cooldown", "failure_threshold"),
    ["default_profile", "default_profile", "one of `router.profiles`"],
    ...same("prefix", "session_header", "inject_usage", "max_body_bytes", "timeouts", "scoring", "admission"),
    [
      "activation_wait",
      "admission.queue_ttl_without_replica",
      "how long a request waits while no machine has its model; hosts load all their models at the start",
    ],
  ]),
  ...edge(
    "Timeouts",
    "router.timeouts.",
    same("dial", "response_header", "generation", "first_token", "idle", "total"),
  ),
  ...edge("Scoring", "router.scoring.", same("target_waiting", "target_inflight", "kv_ceiling", "session_load_factor")),
  ...edge(
    "Prefix",
    "router.prefix.",
    same("enabled", "max_nodes", "min_match", "ttl", "match_ratio", "balance_abs", "balance_rel"),
  ),
  ...edge("Admission", "router.admission.", [
    ...same("enabled", "bands", "default_band"),
    ["band_header", "band_header", "a wish only: it is brought down to the project's highest band"],
    ["queue_ttl", "queue_ttl", "a band may have its own"],
    ["queue_capacity_per_band", "queue_capacity_per_band", "a band may have its own; bytes are bounded too"],
    ["interval", "interval", "read, without effect: admission acts on events, not on a timer"],
  ]),
  ...edge("Band", "router.admission.bands[].", same("name", "priority", "saturation_ceiling")),
  ...edge("Endpoint", "endpoints[].", same("id", "url", "models", "engine", "pool", "weight", "priority")),
  ...edge("Model", "models[].", [
    ...same("name", "aliases", "description", "fallbacks", "routing_profile", "slo", "context_length", "max_output"),
    ...same("capabilities"),
  ]),
  ...host("Model", "models[].", [["source", "source"]]),
  ...edge("Model", "", [
    ["profiles", null, PLACED_BY_HAND],
    ["scaling", null, PLACED_BY_HAND],
  ]),
  ...edge("Capabilities", "models[].capabilities.", same("tools", "vision", "embeddings")),
  ...edge("SLO", "models[].slo.", same("ttft_p99", "tpot_p99")),
  ...edge("Scaling", "", [
    ["min", null, PLACED_BY_HAND],
    ["max", null, PLACED_BY_HAND],
    ["idle_timeout", null, PLACED_BY_HAND],
  ]),
  ...edge("Control", "control.", [
    ...same("unreachable_after", "lease_ttl"),
    ["enabled", null, "hosts may always report; without any, the edge serves its `endpoints`"],
    ["interval", null, PLACED_BY_HAND],
    ["lost_after", null, "fixed at 5 minutes, after which a host's models are no longer listed"],
    ["port_range", null, "engines listen on unix sockets, which need no ports"],
    ["mgmt_interface", null, "an engine is one process on one machine"],
  ]),
  ...host("Control", "", [
    ["base_backoff", "restart_base"],
    ["max_backoff", "restart_max"],
  ]),
  ...host("Config", "", [
    ...same(
      "node_id",
      "server",
      "servers",
      "hostname",
      "labels",
      "heartbeat_interval",
      "reconnect_base",
      "reconnect_max",
    ),
    ["mgmt_addr", "listen", "the host's address, its management routes for this machine only included"],
    ["mgmt_interface", null, "an engine is one process on one machine"],
    ["fabrics", null, "an engine is one process on one machine"],
    ["adopt_ready_timeout", null, "engines end with their host and are started anew, never adopted"],
    ["tls", null, "https to the edge is checked by the system's certificates; the edge's key is pinned by fingerprint"],
    ["model_dirs", "models[].source", "every model names its file"],
    ["weights_cache", null, NO_FETCH],
    ["discovery", null, "the llama.cpp libraries find the devices"],
    ["engines", "models[].engine", "`native` or `sim`, by model"],
    ["supervisor", "restart_base", "its delays are keys of the file itself"],
  ]),
  ...host("Profile", "models[].", [
    ["name", null, "a model has one set of options a host"],
    ["engine", "engine"],
    ["gpu_class", null, PLACED_BY_HAND],
    ["tp", "tensor_split", "shares of one engine's devices"],
    ["pp", null, "an engine is one process on one machine"],
    ["gpus_per_node", "gpu_layers", "layers that go to the devices"],
    ["nodes", null, "an engine is one process on one machine"],
    ["args", null, "options are keys of their own"],
    ["env", null, "options are keys of their own"],
    ["min_memory_gb", null, PLACED_BY_HAND],
    ["min_disk_gb", null, PLACED_BY_HAND],
    ["priority", null, PLACED_BY_HAND],
  ]),
  ...host("Profile", "", [["startup_timeout", "startup_timeout", "one for all models of a host"]]),
  ...edge("Profile", "", [
    ["node_selector", "models[].node_selector", "which hosts may serve a model, by their `labels`"],
    ["weight", "endpoints[].weight", "for endpoints; hosts report what they measure"],
  ]),
  ...host("Options", "", [
    ["nvidia_smi", null, "the llama.cpp libraries find the devices"],
    ["ib_root", null, "an engine is one process on one machine"],
    ["prefer_nvml", null, "the llama.cpp libraries find the devices"],
    ["skip_gpus", "device", "`cpu` uses no card"],
  ]),
  ...host("LlamaCppConfig", "", [
    ["bin", null, "the engine is part of the host; no other program is started"],
    ["parallel", "slots"],
  ]),
  ...edge("VLLMConfig", "", [
    ["bin", "endpoints", "a vLLM server is an endpoint"],
    ["launch_mode", null, "a vLLM server is an endpoint"],
    ["ray_bin", null, "a vLLM server is an endpoint"],
  ]),
  ...edge("SGLangConfig", "", [["python", "endpoints", "an SGLang server is an endpoint"]]),
  ...host("SimConfig", "", [["bin", "models[].engine", "`sim` is part of the host"]]),
  ...edge("Landing", "", [
    ["contact", null, NO_PAGES],
    ["notice", null, NO_PAGES],
  ]),
  ...edge("Mirror", "", [
    ["api", null, NO_FETCH],
    ["tls", null, NO_FETCH],
    ["registry", null, NO_FETCH],
    ["timeout", null, NO_FETCH],
  ]),
  ...edge("Monitoring", "", [
    ["prometheus", null, HISTORY],
    ["window", null, HISTORY],
    ["timeout", null, HISTORY],
  ]),
  ...edge("Threads", "", [
    ["store", null, "no conversations are kept: prompts and answers are written nowhere"],
    ["retain_hours", null, "no conversations are kept: prompts and answers are written nowhere"],
  ]),
];

/** Where llmgw's blocks stand in its file, for the path of a key that is not known here. */
const PLACES: Readonly<Record<string, string>> = {
  Server: "",
  Auth: "auth",
  Price: "auth.pricing.*",
  Router: "router",
  Timeouts: "router.timeouts",
  Scoring: "router.scoring",
  Prefix: "router.prefix",
  Admission: "router.admission",
  Band: "router.admission.bands[]",
  Endpoint: "endpoints[]",
  Model: "models[]",
  Capabilities: "models[].capabilities",
  SLO: "models[].slo",
  Control: "control",
};

/**
 * What to tell somebody whose file has a key of llmgw at this place that is none here; null for a key that llmgw did not
 * have either. `place` is the block's path with `[]` for entries of a list.
 */
export function llmgwHint(place: string, name: string): string | null {
  const key = LLMGW_KEYS.find((candidate) => candidate.name === name && PLACES[candidate.block] === place);
  if (key === undefined) return null;
  const where =
    key.path === null
      ? "llmgw's setting has no place here"
      : `in the file of ${key.file === "host" ? "a host" : "the edge"} it is '${key.path}'`;
  return key.note === null ? where : `${where}: ${key.note}`;
}

const cell = (text: string): string => text.replaceAll("|", "\\|");

/** The table of CONFIG.md. */
export function llmgwTable(): string {
  const rows = LLMGW_KEYS.map(({ block, name, file, path, note }) => {
    const kept = path !== null && file === "edge" && path.split(".").at(-1) === name;
    const where = path === null ? "–" : `\`${path}\`${file === "host" ? " of a host" : ""}`;
    return `| ${block} | \`${name}\` | ${path === null ? "not read" : kept ? "honoured" : "replaced"} | ${where} | ${cell(note ?? "")} |`;
  });
  return ["| block | key | here | path | why, or what is different |", "|---|---|---|---|---|", ...rows, ""].join("\n");
}
