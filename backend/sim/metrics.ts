import type { SimAccount } from "./account.ts";
import type { Slots } from "./slots.ts";

/** Prometheus text under vLLM's metric names, which is what a router scrapes when it is told nothing else. */
export function metricsText(model: string, slots: Slots, account: SimAccount): string {
  const label = `model_name="${model.replace(/["\\\n]/g, "_")}"`;
  const { totals } = account;
  const lines: string[] = [];
  const value = (name: string, type: string, amount: number): void => {
    lines.push(`# TYPE ${name} ${type}`, `${name}{${label}} ${amount}`);
  };
  value("vllm:num_requests_running", "gauge", slots.taken);
  value("vllm:num_requests_waiting", "gauge", slots.waiting);
  value("vllm:kv_cache_usage_perc", "gauge", account.kvUse);
  value("vllm:num_preemptions_total", "counter", 0);
  value("vllm:prompt_tokens_total", "counter", totals.promptTokens);
  value("vllm:generation_tokens_total", "counter", totals.completionTokens);
  lines.push("# TYPE vllm:request_success_total counter");
  for (const [reason, count] of totals.finished)
    lines.push(`vllm:request_success_total{finished_reason="${reason}",${label}} ${count}`);
  lines.push(...totals.ttftSeconds.lines("vllm:time_to_first_token_seconds", label));
  lines.push(...totals.perTokenSeconds.lines("vllm:time_per_output_token_seconds", label));
  return `${lines.join("\n")}\n`;
}
