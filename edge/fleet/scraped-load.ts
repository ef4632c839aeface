/** What a server's metrics page says of its load. */
export interface ScrapedLoad {
  /** Running and waiting there, whoever sent it. */
  readonly inFlight: number;
  readonly waiting: number;
  /** Share of KV cells in use; null where the page does not say. */
  readonly kvUse: number | null;
}

interface MetricNames {
  readonly running: string;
  readonly waiting: string;
  /** The first that is there. */
  readonly kvUse: readonly string[];
}

const VLLM: MetricNames = {
  running: "vllm:num_requests_running",
  waiting: "vllm:num_requests_waiting",
  kvUse: ["vllm:kv_cache_usage_perc", "vllm:gpu_cache_usage_perc"],
};
const SGLANG: MetricNames = {
  running: "sglang:num_running_reqs",
  waiting: "sglang:num_queue_reqs",
  kvUse: ["sglang:token_usage"],
};
const LLAMACPP: MetricNames = {
  running: "llamacpp:requests_processing",
  waiting: "llamacpp:requests_deferred",
  kvUse: ["llamacpp:kv_cache_usage_ratio"],
};

/** Metric names by `endpoints[].engine`; empty is vLLM's, which the simulated engine uses too. */
const NAMES_OF_ENGINE: Readonly<Record<ScrapedEngine, MetricNames>> = {
  "": VLLM,
  vllm: VLLM,
  sim: VLLM,
  sglang: SGLANG,
  llamacpp: LLAMACPP,
};

export const SCRAPED_ENGINES = ["", "vllm", "sglang", "llamacpp", "sim"] as const;
export type ScrapedEngine = (typeof SCRAPED_ENGINES)[number];

/** One sample of the Prometheus text format: name, labels, value. */
const SAMPLE = /^([a-zA-Z_:][\w:]*)(?:\{(.*)\})?\s+(\S+)/;
const MODEL_LABEL = /(?:^|,)\s*model_name="((?:[^"\\]|\\.)*)"/;

/**
 * The load of one model by the text of a metrics page; null where the page tells nothing of it. Where samples name
 * models only those of this one count, unless none is named so.
 */
export function scrapedLoad(text: string, engine: ScrapedEngine, model: string): ScrapedLoad | null {
  const names = NAMES_OF_ENGINE[engine];
  const wanted = new Set([names.running, names.waiting, ...names.kvUse]);
  const ofModel = new Map<string, number>();
  const ofAll = new Map<string, number>();
  for (const line of text.split("\n")) {
    const [, name = "", labels = "", valueText = ""] = SAMPLE.exec(line) ?? [];
    const value = Number(valueText);
    if (!wanted.has(name) || !Number.isFinite(value)) continue;
    ofAll.set(name, (ofAll.get(name) ?? 0) + value);
    if (MODEL_LABEL.exec(labels)?.[1] === model) ofModel.set(name, (ofModel.get(name) ?? 0) + value);
  }
  const values = ofModel.size > 0 ? ofModel : ofAll;
  const running = values.get(names.running);
  if (running === undefined) return null;
  const waiting = Math.max(0, values.get(names.waiting) ?? 0);
  const kvUse = names.kvUse.flatMap((name) => values.get(name) ?? [])[0];
  return {
    inFlight: Math.max(0, running) + waiting,
    waiting,
    kvUse: kvUse === undefined ? null : Math.min(1, Math.max(0, kvUse)),
  };
}
