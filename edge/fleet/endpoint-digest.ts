import type { ReplicaDigest } from "../ports/coordinator.ts";
import { CAPABILITY_OF_ROUTE } from "../routing/capabilities.ts";
import type { StaticEndpoint } from "./settings.ts";

/** Both spellings of an address work: the origin, and the base URL that OpenAI clients take. */
export function originOf(url: string): string {
  return url.replace(/\/+$/, "").replace(/\/v1$/, "");
}

/** One model of a static endpoint as a replica. It sends no reports, so only our own count of it is known. */
export function endpointDigest(endpoint: StaticEndpoint, model: string): ReplicaDigest {
  return {
    target: {
      key: `${endpoint.id}/${model}`,
      kind: "endpoint",
      backend: endpoint.id,
      replicaId: model,
      url: originOf(endpoint.url),
      model,
      epoch: null,
    },
    ready: true,
    draining: false,
    slots: endpoint.slots,
    reportedInFlight: null,
    reportedInFlightOfThisEdge: null,
    waiting: 0,
    reportedAtMs: null,
    freeKvCells: 0,
    totalKvCells: 0,
    contextLength: null,
    capabilities: Object.values(CAPABILITY_OF_ROUTE),
    saes: [],
    weight: endpoint.weight,
    priority: endpoint.priority,
  };
}
