import { z } from "zod";
import { profileNameSchema } from "../../shared/steering/profile.ts";
import { steeringSchema } from "../../shared/steering/steering-set.ts";
import { LOG_LEVELS } from "../../shared/logging/logger.ts";
import { DEFAULT_MONITORING, monitoringOptionsSchema, watchListSchema } from "./watch-lists.ts";

/** What a key-value cache cell is stored in; quantised ones need flash attention. */
export const KV_CACHE_TYPES = ["f32", "f16", "q8_0", "q4_0"] as const;

/** Whose the cells are: one pool for all sequences, or a stream of them for each; `auto` lets the engine choose. */
export const KV_LAYOUTS = ["auto", "unified", "streams"] as const;

/** Builds of the llama.cpp libraries. */
export const DEVICES = ["cpu", "cuda", "vulkan"] as const;

/** Where guesses come from: `prompt_lookup` copies what stood in the sequence before, `draft_model` asks a small model. */
export const SPECULATIVE_METHODS = ["off", "prompt_lookup", "draft_model"] as const;

/** Text beside an SAE on which its fidelity is measured. */
export const CALIBRATION_FILE = "calibration.txt";
/** An SAE that explains less of the model's residual stream than this share of its variance is not served. */
export const DEFAULT_MIN_EXPLAINED_VARIANCE = 0.5;

/** One SAE as an engine loads it; paths are absolute. */
export const saeOptionsSchema = z.object({
  id: z.string().min(1),
  path: z.string().min(1),
  layer: z.int().min(0).nullable(),
  /** Text to measure its fidelity on; null takes `calibration.txt` in its folder, if there is one. */
  calibration_text: z.string().min(1).nullable().default(null),
  /** Serve it whatever its fidelity. */
  serve_anyway: z.boolean().default(false),
  /** Without it the engine does not start. One that an operator attached is told as refused instead. */
  required: z.boolean().default(true),
});

/**
 * The file that `steerage-backend engine --options-json FILE` reads: everything one engine process needs to know.
 * Written by the host's launcher, in a folder that only its user may enter. Paths are absolute.
 */
export const engineOptionsSchema = z.object({
  /** Public name of the model, as requests and the model list have it. */
  model: z.string().min(1),
  /** Unix socket to listen on; the folder exists and nothing stands at the path. */
  socket_path: z.string().min(1),
  /** Where running requests are accounted for beyond this process (account-board.ts); null for nowhere. */
  accounts_path: z.string().min(1).nullable().default(null),
  /** GGUF file. */
  model_path: z.string().min(1),
  /** Folders of SAEs in any format that backend/sae reads. `layer` overrides what an SAE says of itself. */
  saes: z.array(saeOptionsSchema),
  /** What is watched from the first request on. */
  watch_lists: z.array(watchListSchema).default([]),
  monitoring: monitoringOptionsSchema.default(DEFAULT_MONITORING),
  /** Named steerings that requests may ask for. */
  profiles: z.array(z.object({ name: profileNameSchema, steering: steeringSchema })).default([]),
  /** An SAE below this explained variance is not served. */
  min_explained_variance: z.number().max(1).default(DEFAULT_MIN_EXPLAINED_VARIANCE),
  /** Folder that keeps what was measured; null keeps nothing. */
  fidelity_folder: z.string().min(1).nullable().default(null),
  /** Whether callers may send a grammar of their own: one can be written that never ends. */
  allow_grammar: z.boolean().default(false),
  /** Requests that are computed at the same time. */
  slots: z.int().min(1),
  /** Requests that may wait for a slot; one more is refused with `engine_busy`. */
  max_pending: z.int().min(0),
  /** Ceiling on the window of one request, prompt and completion together, tokens; 0 means what the file declares. */
  context_length: z.int().min(0),
  kv_cache_type: z.enum(KV_CACHE_TYPES),
  kv_layout: z.enum(KV_LAYOUTS).default("auto"),
  flash_attention: z.boolean(),
  enable_embeddings: z.boolean().default(true),
  /** 0 means the machine's physical cores. */
  threads: z.int().min(0),
  /** Which build of the llama.cpp libraries to run on. */
  device: z.enum(DEVICES).default("cpu"),
  /** Layers to offload; -1 means all that fit. */
  gpu_layers: z.int().min(-1),
  /** One proportion per device, or empty for llama.cpp's own choice. */
  tensor_split: z.array(z.number().min(0)),
  /** Guesses next tokens of running answers and verifies them in one step; null does not. */
  speculation: z
    .object({
      /** Guessed for an answer and step at most. */
      num_tokens: z.int().min(1).max(64),
      /** GGUF file of the draft model; null looks tokens up in the sequence itself. */
      model_path: z.string().min(1).nullable().default(null),
    })
    .nullable()
    .default(null),
  log_level: z.enum(LOG_LEVELS),
  log_format: z.enum(["console", "json"]),
});
export type EngineOptions = z.infer<typeof engineOptionsSchema>;
