import { parseDurationMs } from "../shared/config/units.ts";

export const STEERAGE_PREFIX = "STEERAGE_";

/**
 * Names that differ from the rule: miLLM's where it means the same, and the enrolment token's, which says whose token it
 * is. `HOST` and `PORT` together stand for `listen`.
 */
export const SPECIAL_NAMES: Readonly<Record<string, string>> = {
  token: "STEERAGE_HOST_TOKEN",
  context_length: "GGUF_CONTEXT_LENGTH",
  kv_cache_type: "GGUF_KV_CACHE_TYPE",
  kv_layout: "GGUF_KV_LAYOUT",
  flash_attention: "GGUF_FLASH_ATTENTION",
  enable_embeddings: "GGUF_ENABLE_EMBEDDINGS",
  tensor_split: "GGUF_TENSOR_SPLIT",
  speculative_model: "SPECULATIVE_MODEL",
  speculative_num_tokens: "SPECULATIVE_NUM_TOKENS",
  max_pending: "MAX_PENDING_REQUESTS",
  drain_timeout: "GRACEFUL_UNLOAD_TIMEOUT",
  "monitoring.context_tokens": "SENSING_CONTEXT_TOKENS",
  "monitoring.max_events_per_request": "SENSING_MAX_EVENTS_PER_REQUEST",
  "logging.level": "LOG_LEVEL",
  "logging.format": "LOG_FORMAT",
};

const LEVELS: Readonly<Record<string, string>> = { DEBUG: "debug", INFO: "info", WARNING: "warn", ERROR: "error" };

/** Environment variables that hold the enrolment token; engine processes do not inherit them. */
export const SECRET_NAMES = ["STEERAGE_HOST_TOKEN", "STEERAGE_TOKEN"] as const;

export interface AdaptedEnvironment {
  readonly environment: Readonly<Record<string, string | undefined>>;
  readonly warnings: readonly string[];
}

/**
 * Reads the special names as those of the rule, which win when both are set. `MAX_CONCURRENT_REQUESTS=1` was a
 * rule of correctness there and is none here, so it is read as "default slots", with a warning.
 */
export function hostEnvironment(given: Readonly<Record<string, string | undefined>>): AdaptedEnvironment {
  const environment: Record<string, string | undefined> = { ...given };
  const warnings: string[] = [];
  for (const [key, theirs] of Object.entries(SPECIAL_NAMES)) {
    const text = given[theirs];
    const ours = `${STEERAGE_PREFIX}${key.replaceAll(".", "__").toUpperCase()}`;
    if (text === undefined || text === "" || given[ours] !== undefined) continue;
    environment[ours] = valueOf(key, text);
  }
  const listen = `${STEERAGE_PREFIX}LISTEN`;
  if ((given["HOST"] ?? given["PORT"]) !== undefined && given[listen] === undefined)
    environment[listen] = `${given["HOST"] ?? "127.0.0.1"}:${given["PORT"] ?? "8090"}`;
  const concurrent = given["MAX_CONCURRENT_REQUESTS"];
  const slots = `${STEERAGE_PREFIX}SLOTS`;
  if (concurrent !== undefined && concurrent !== "" && given[slots] === undefined) {
    if (concurrent === "1") {
      warnings.push(
        "MAX_CONCURRENT_REQUESTS=1 is read as the default number of slots: steering is per request here. STEERAGE_SLOTS=1 forces one.",
      );
    } else environment[slots] = concurrent;
  }
  if (/^(?:true|1)$/i.test(given["CBM_FORCE_SERIAL_MONITORING"] ?? "")) {
    warnings.push(
      "CBM_FORCE_SERIAL_MONITORING changes nothing here: in a batch too, every activation belongs to its own request.",
    );
  }
  return { environment, warnings };
}

function valueOf(key: string, text: string): string {
  if (key === "logging.level") return LEVELS[text.toUpperCase()] ?? text;
  if (key === "drain_timeout" && parseDurationMs(text) === null) return `${text}s`;
  if (key === "flash_attention" || key === "enable_embeddings") return text.toLowerCase();
  return text;
}
