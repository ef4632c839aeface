import type { Report, ReplicaReport } from "../../shared/protocol/report.ts";

/** A report of a host with one ready replica of the model `m`. */
export function hostReport(more: Partial<Report> = {}, replica: Partial<ReplicaReport> = {}): Report {
  return {
    protocol: 1,
    host: "gpu",
    epoch: 1,
    seq: 1,
    at: 0,
    url: "http://gpu.test",
    labels: {},
    replicas: [
      {
        id: "r1",
        model: "m",
        engine: "native",
        state: "ready",
        slots: 4,
        in_flight: 0,
        in_flight_by_edge: {},
        waiting: 0,
        free_kv_cells: 100,
        total_kv_cells: 100,
        tokens_per_second: 0,
        prefill_tokens_per_second: 0,
        context_length: 4_096,
        capabilities: ["chat"],
        saes: [{ id: "sae-1", digest: "00", layer: 1, hook_point: "blocks.1.hook_resid_post", d_sae: 512 }],
        ...replica,
      },
    ],
    ended: [],
    counters: [],
    gpus: [],
    memory: { total_bytes: 0, free_bytes: 0 },
    disk: null,
    weights: [],
    draining: false,
    ...more,
  };
}
