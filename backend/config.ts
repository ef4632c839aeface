import { readFileSync } from "node:fs";
import { hostname } from "node:os";
import path from "node:path";
import { parse, YAMLParseError } from "yaml";
import { z } from "zod";
import { environmentName, withEnvironment } from "../shared/config/environment.ts";
import { ConfigError, readConfig } from "../shared/config/read-config.ts";
import { duration, size } from "../shared/config/units.ts";
import { LOG_LEVELS } from "../shared/logging/logger.ts";
import { profileNameSchema } from "../shared/steering/profile.ts";
import { steeringSchema } from "../shared/steering/steering-set.ts";
import { hostEnvironment, SPECIAL_NAMES, STEERAGE_PREFIX } from "./host-environment.ts";
import { DEFAULT_MONITORING, MAX_CONTEXT_TOKENS } from "./ports/watch-lists.ts";
import {
  DEFAULT_MIN_EXPLAINED_VARIANCE,
  DEVICES,
  KV_CACHE_TYPES,
  KV_LAYOUTS,
  SPECULATIVE_METHODS,
} from "./ports/engine-options.ts";

const kvCacheType = z.enum(KV_CACHE_TYPES);
const kvLayout = z.enum(KV_LAYOUTS);
const slots = z.int().min(1).max(256);
const contextLength = z.int().min(0);
const gpuLayers = z.int().min(-1);
const threads = z.int().min(0);
const device = z.enum(DEVICES);
const maxPending = z.int().min(0);
const speculativeMethod = z.enum(SPECULATIVE_METHODS);
const speculativeModel = z.string().min(1);
const speculativeNumTokens = z.int().min(1).max(64);

const saeSchema = z.strictObject({
  id: z.string().min(1).describe("Name by which requests steer with it."),
  source: z
    .string()
    .min(1)
    .describe("Folder of the SAE: SAELens, Gemma Scope, Llama Scope or sparsify; relative to this file."),
  layer: z
    .int()
    .min(0)
    .optional()
    .describe("Block after which it reads and steers; what the SAE says of itself if not given."),
  calibration_text: z
    .string()
    .min(1)
    .optional()
    .describe("Text file on which its fidelity is measured; `calibration.txt` in its folder if not given."),
  serve_anyway: z.boolean().default(false).describe("Serves it even below `min_explained_variance`."),
});

const modelSchema = z.strictObject({
  name: z.string().min(1).describe("Public name, unique on this host; the replica is reported under it."),
  engine: z
    .enum(["native", "sim"])
    .default("native")
    .describe("`native` computes; `sim` is the scripted engine for rehearsals."),
  source: z.string().min(1).optional().describe("GGUF file; relative to this file. Not needed by `sim`."),
  saes: z.array(saeSchema).default([]).describe("SAEs that are attached when the model loads."),
  profiles: z
    .array(
      z.strictObject({
        name: profileNameSchema.describe("Name by which requests ask for it, with `profile`."),
        steering: steeringSchema.describe("As a request's `steering`: an object, or a list with one per SAE."),
      }),
    )
    .default([])
    .describe("Named steerings; requests scale them with `steering_intensity`."),
  slots: slots.optional().describe("As the key of the same name above, for this model."),
  max_pending: maxPending.optional().describe("As above, for this model."),
  context_length: contextLength.optional().describe("As above, for this model."),
  kv_cache_type: kvCacheType.optional().describe("As above, for this model."),
  kv_layout: kvLayout.optional().describe("As above, for this model."),
  flash_attention: z.boolean().optional().describe("As above, for this model."),
  enable_embeddings: z.boolean().optional().describe("As above, for this model."),
  threads: threads.optional().describe("As above, for this model."),
  gpu_layers: gpuLayers.optional().describe("As above, for this model."),
  device: device.optional().describe("As above, for this model."),
  tensor_split: z.array(z.number().min(0)).optional().describe("As above, for this model."),
  speculative_method: speculativeMethod.optional().describe("As above, for this model."),
  speculative_model: speculativeModel.optional().describe("As above, for this model."),
  speculative_num_tokens: speculativeNumTokens.optional().describe("As above, for this model."),
  sim: z
    .record(z.string(), z.union([z.string(), z.number(), z.boolean()]))
    .default({})
    .describe("Script of a `sim` engine: the flags of `steerage-backend sim`, with underscores."),
});

/** Everything a host can be told, in file order; CONFIG.md is generated from it. */
export const hostConfigSchema = z.strictObject({
  node_id: z.string().min(1).optional().describe("Name of this host in tokens and reports; `hostname` if not given."),
  hostname: z
    .string()
    .min(1)
    .optional()
    .describe("Name of this host when `node_id` is not given; the machine's own if neither is."),
  listen: z.string().default("127.0.0.1:8090").describe("Address that edges send requests to."),
  url: z
    .string()
    .optional()
    .describe(
      "Origin at which edges reach `listen`, such as `https://gpu-1.example:8090`; made of `listen` if not given.",
    ),
  server: z.string().optional().describe("Agent address of the one edge; the same as a `servers` of one."),
  servers: z.array(z.string()).default([]).describe("Agent addresses of all edges, such as `http://127.0.0.1:8081`."),
  token: z.string().min(1).optional().describe("Enrolment token, made by `steerage hosts enroll`."),
  token_file: z.string().min(1).optional().describe("File that holds the enrolment token; relative to this file."),
  edge_key_fingerprints: z
    .array(z.string())
    .default([])
    .describe(
      "RFC 7638 thumbprints of the edge keys to trust, of all edges, as `steerage hosts enroll` shows them. Empty: those of a first contact over TLS or loopback are trusted and kept; over plain HTTP elsewhere none is.",
    ),
  insecure: z.boolean().default(false).describe("Allows plain HTTP off loopback, for `listen` and for `servers`."),
  data: z
    .string()
    .default(".steerage/host")
    .describe(
      "Folder for what outlives a restart: ended requests, edge keys, placement, operators' changes and token, SAE fidelity; relative to this file.",
    ),
  heartbeat_interval: duration("1s").describe("Time between reports when nothing changes."),
  reconnect_base: duration("500ms").describe(
    "First delay after a report could not be delivered; it doubles, at a refused connection only after ten seconds.",
  ),
  reconnect_max: duration("30s").describe("Longest delay between such tries."),
  labels: z.record(z.string(), z.string()).default({}).describe("Labels of this host, for placement and pages."),
  slots: slots.default(8).describe("Requests that a model computes at the same time."),
  max_pending: maxPending.default(10).describe("Requests that may wait for a slot of a model; more get 503."),
  context_length: contextLength
    .default(32_768)
    .describe(
      "Ceiling on the window of a request in tokens: the largest the file declares under it. 0: what the file declares.",
    ),
  kv_cache_type: kvCacheType
    .default("q8_0")
    .describe("Precision of the key-value cache; quantised ones need flash attention."),
  kv_layout: kvLayout
    .default("auto")
    .describe(
      "Whose cells are whose. `streams`: every slot has a whole window of its own, fast where many answers run on a processor. `unified`: one pool, in which fewer cells serve long windows and a shared prefix is held once. `auto`: streams on a processor where all windows fit, else unified.",
    ),
  flash_attention: z
    .boolean()
    .default(true)
    .describe("Flash attention; without it a batched answer may differ from its solo run."),
  enable_embeddings: z
    .boolean()
    .default(true)
    .describe(
      "Whether engines answer `/v1/embeddings`, in a context that is opened at the first such request and costs generation nothing.",
    ),
  threads: threads.default(0).describe("CPU threads of an engine; 0 means the physical cores."),
  gpu_layers: gpuLayers.default(-1).describe("Layers to offload to the GPU; -1 means all that fit."),
  device: device.default("cpu").describe("Which build of llama.cpp engines run on."),
  tensor_split: z
    .array(z.number().min(0))
    .default([])
    .describe("Share of each GPU, in index order; empty divides by free memory."),
  speculative_method: speculativeMethod
    .optional()
    .describe(
      "Guesses the next tokens of answers and verifies several in one step; answers stay the same. `prompt_lookup` copies what stood in the text before, `draft_model` asks `speculative_model`. If not given: `draft_model` where there is one, else `off`.",
    ),
  speculative_model: speculativeModel
    .optional()
    .describe("GGUF file of a small model with the same vocabulary, which guesses; relative to this file."),
  speculative_num_tokens: speculativeNumTokens.default(5).describe("Tokens guessed for an answer and step at most."),
  min_explained_variance: z
    .number()
    .max(1)
    .default(DEFAULT_MIN_EXPLAINED_VARIANCE)
    .describe("An SAE that explains less of the residual stream of its model's file than this share is not served."),
  allow_grammar: z
    .boolean()
    .default(false)
    .describe(
      "Whether callers may send a `grammar` (GBNF) of their own. One can be written that keeps an engine busy for minutes: for callers you trust.",
    ),
  models: z.array(modelSchema).default([]).describe("What this host serves."),
  monitoring: z
    .strictObject({
      context_text: z
        .boolean()
        .default(DEFAULT_MONITORING.context_text)
        .describe("Whether events of watch lists carry the text around the token. It is the callers' text."),
      context_tokens: z
        .int()
        .min(0)
        .max(MAX_CONTEXT_TOKENS)
        .default(DEFAULT_MONITORING.context_tokens)
        .describe("Tokens of such text on either side, where a watch list does not say."),
      history: z
        .int()
        .min(1)
        .max(100_000)
        .default(DEFAULT_MONITORING.history)
        .describe("Newest events that are kept of each watch list, in memory."),
      max_events_per_request: z
        .int()
        .min(1)
        .max(100_000)
        .default(DEFAULT_MONITORING.max_events_per_request)
        .describe("Events of one watch list in one request; more are counted only."),
    })
    .prefault({})
    .describe("Watch lists, which operators set at run time."),
  startup_timeout: duration("10m").describe(
    "Longest time an engine may take to load before it is ended and tried again.",
  ),
  restart_base: duration("1s").describe("First delay before a crashed engine is started again; it doubles."),
  restart_max: duration("5m").describe("Longest such delay, and the delay after a file that cannot be used."),
  drain_timeout: duration("30s").describe("How long running requests may go on after SIGTERM."),
  max_body_bytes: size("10MiB").describe("Largest request body."),
  logging: z
    .object({
      level: z.enum(LOG_LEVELS).default("info").describe("Least severe level that is written."),
      format: z.enum(["console", "json"]).default("console").describe("For people or for machines."),
    })
    .prefault({})
    .describe("Log lines go to stderr."),
});

type ParsedHostConfig = z.output<typeof hostConfigSchema>;
export type ModelConfig = ParsedHostConfig["models"][number];

/** A checked configuration: names settled, paths absolute, the token read. */
export interface HostConfig extends Omit<
  ParsedHostConfig,
  "token" | "token_file" | "server" | "hostname" | "node_id" | "url"
> {
  readonly host: string;
  /** Null: made of the address that is listened on, see `originOf`. */
  readonly url: string | null;
  readonly listenAddress: { readonly address: string; readonly port: number };
  /** Never logged. Null when no edge is configured. */
  readonly token: string | null;
  /** What an operator should know about the environment's old names. */
  readonly warnings: readonly string[];
}

/** Under which name the environment sets a key: miLLM's where the meaning is the same. */
export function hostEnvironmentName(keyPath: string): string | null {
  return SPECIAL_NAMES[keyPath] ?? environmentName(STEERAGE_PREFIX, keyPath);
}

/** Reads and checks a host's configuration file under an environment. Throws ConfigError, meant for the operator. */
export function loadHostConfig(file: string, environment: Readonly<Record<string, string | undefined>>): HostConfig {
  const absolute = path.resolve(file);
  return readHostConfig(parseYaml(absolute), environment, absolute);
}

/** The same from a parsed document; `file` names it in messages and anchors relative paths. */
export function readHostConfig(
  document: unknown,
  environment: Readonly<Record<string, string | undefined>>,
  file: string,
): HostConfig {
  const adapted = hostEnvironment(environment);
  const layered = withEnvironment(document, hostConfigSchema, STEERAGE_PREFIX, adapted.environment);
  const {
    token,
    token_file,
    server,
    hostname: hostName,
    node_id,
    ...rest
  } = readConfig(hostConfigSchema, layered, file);
  const folder = path.dirname(file);
  const absolute = (given: string): string => path.resolve(folder, given);
  const listenAddress = parseListen(rest.listen, file);
  const servers = [...(server === undefined ? [] : [server]), ...rest.servers].map((text) => text.replace(/\/+$/, ""));
  const config: HostConfig = {
    ...rest,
    host: node_id ?? hostName ?? hostname(),
    listenAddress,
    servers,
    url: rest.url?.replace(/\/+$/, "") ?? null,
    data: absolute(rest.data),
    ...(rest.speculative_model === undefined ? {} : { speculative_model: absolute(rest.speculative_model) }),
    token: token ?? (token_file === undefined ? null : readToken(absolute(token_file))),
    models: rest.models.map((model) => ({
      ...model,
      ...(model.source === undefined ? {} : { source: absolute(model.source) }),
      ...(model.speculative_model === undefined ? {} : { speculative_model: absolute(model.speculative_model) }),
      saes: model.saes.map((sae) => ({
        ...sae,
        source: absolute(sae.source),
        ...(sae.calibration_text === undefined ? {} : { calibration_text: absolute(sae.calibration_text) }),
      })),
    })),
    warnings: adapted.warnings,
  };
  const faults = faultsOf(config);
  if (faults.length > 0)
    throw new ConfigError(`${file} cannot be used:\n${faults.map((fault) => `  ${fault}`).join("\n")}`);
  return config;
}

function parseYaml(file: string): unknown {
  let text: string;
  try {
    text = readFileSync(file, "utf8");
  } catch (error) {
    throw new ConfigError(`${file} cannot be read: ${error instanceof Error ? error.message : String(error)}`);
  }
  try {
    return parse(text);
  } catch (error) {
    if (error instanceof YAMLParseError)
      throw new ConfigError(`${file} is not YAML: ${error.message.split("\n", 1)[0]}`);
    throw error;
  }
}

function readToken(file: string): string {
  let text: string;
  try {
    text = readFileSync(file, "utf8").trim();
  } catch (error) {
    const reason = error instanceof Error ? error.message : String(error);
    throw new ConfigError(
      `token_file cannot be read: ${reason}. It holds the token that \`steerage hosts enroll\` on the edge gave.`,
    );
  }
  if (text === "") throw new ConfigError(`token_file ${file} is empty`);
  return text;
}

function parseListen(text: string, file: string): { address: string; port: number } {
  const match = /^(?:\[([0-9a-fA-F:]+)\]|([^:[\]]*)):(\d{1,5})$/.exec(text);
  const port = Number(match?.[3]);
  if (match === null || port > 65_535)
    throw new ConfigError(
      `${file} cannot be used:\n  listen: '${text}' is not an address and a port, such as 127.0.0.1:8090`,
    );
  return { address: match[1] ?? (match[2] || "0.0.0.0"), port };
}

/** Where edges reach this host: as configured, or the listening address, or the machine's name when that is "any". */
export function originOf(config: Pick<HostConfig, "url" | "listenAddress">, port: number): string {
  if (config.url !== null) return config.url;
  const { address } = config.listenAddress;
  if (isAnyAddress(address)) return `http://${hostname()}:${port}`;
  return `http://${address.includes(":") ? `[${address}]` : address}:${port}`;
}

const isAnyAddress = (address: string): boolean => address === "0.0.0.0" || address === "::";

/** Loopback by name or number; nothing else may carry plain HTTP unasked. */
export function isLoopback(host: string): boolean {
  const bare = host.replace(/^\[|\]$/g, "");
  return bare === "localhost" || bare === "::1" || /^127(\.\d{1,3}){3}$/.test(bare);
}

function isHttpAddress(text: string): boolean {
  return URL.canParse(text) && /^https?:$/.test(new URL(text).protocol);
}

function faultsOf(config: HostConfig): string[] {
  const faults: string[] = [];
  if (config.servers.length > 0 && config.token === null)
    faults.push(
      "token: needed to report to `servers`; set token, token_file or STEERAGE_HOST_TOKEN to what `steerage hosts enroll` gave",
    );
  if (!config.insecure && !isLoopback(config.listenAddress.address))
    faults.push("listen: plain HTTP off loopback needs `insecure: true`");
  for (const server of config.servers) {
    if (!isHttpAddress(server)) faults.push(`servers: '${server}' is not an HTTP address`);
    else if (!config.insecure && new URL(server).protocol === "http:" && !isLoopback(new URL(server).hostname))
      faults.push(`servers: plain HTTP to '${server}' is off loopback and needs \`insecure: true\``);
  }
  if (config.url !== null && !isHttpAddress(config.url)) faults.push(`url: '${config.url}' is not an origin`);
  if (config.heartbeat_interval < 100) faults.push("heartbeat_interval: must be at least 100ms");
  const names = new Set<string>();
  config.models.forEach((model, place) => {
    const at = `models[${place}]`;
    if (names.has(model.name)) faults.push(`${at}.name: '${model.name}' is named twice`);
    names.add(model.name);
    if (model.engine === "native" && model.source === undefined)
      faults.push(`${at}.source: a native model needs its GGUF file`);
    const kv = model.kv_cache_type ?? config.kv_cache_type;
    if (!(model.flash_attention ?? config.flash_attention) && (kv === "q8_0" || kv === "q4_0"))
      faults.push(`${at}: kv_cache_type ${kv} needs flash_attention`);
    const method = model.speculative_method ?? config.speculative_method;
    if (method === "draft_model" && (model.speculative_model ?? config.speculative_model) === undefined)
      faults.push(`${at}.speculative_model: speculative_method draft_model needs the GGUF file of a draft model`);
    if (new Set(model.saes.map(({ id }) => id)).size < model.saes.length)
      faults.push(`${at}.saes: an id is named twice`);
  });
  return faults;
}
