import type { ReplicaDigest } from "../ports/coordinator.ts";
import { CAPABILITY_OF_ROUTE } from "../routing/capabilities.ts";
import type { ScrapedLoad } from "./scraped-load.ts";
import type { ModelNote, StaticEndpoint } from "./settings.ts";

/** Both spellings of an address work: the origin, and the base URL that OpenAI clients take. */
export function originOf(url: string): string {
  return url.replace(/\/+$/, "").replace(/\/v1$/, "");
}

/** The share of KV cells in use is told in these. */
const CELLS = 1_000;

/** What a metrics page said, and when, by our wall clock. */
export interface ScrapedEndpoint {
  readonly loads: ReadonlyMap<string, ScrapedLoad>;
  readonly atMs: number;
}

/**
 * One model of a static endpoint as a replica. It sends no reports; where its metrics cannot be read either, only our
 * own count of it is known.
 */
export function endpointDigest(
  endpoint: StaticEndpoint,
  model: string,
  scraped: ScrapedEndpoint | null = null,
  note?: ModelNote,
): ReplicaDigest {
  const load = scraped?.loads.get(model) ?? null;
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
    reportedInFlight: load?.inFlight ?? null,
    reportedInFlightOfThisEdge: null,
    waiting: load?.waiting ?? 0,
    reportedAtMs: load === null ? null : (scraped?.atMs ?? null),
    freeKvCells: load === null || load.kvUse === null ? 0 : Math.round(CELLS * (1 - load.kvUse)),
    totalKvCells: load === null || load.kvUse === null ? 0 : CELLS,
    contextLength: note?.contextLength ?? null,
    capabilities: [...Object.values(CAPABILITY_OF_ROUTE), ...(note?.can ?? [])],
    lacks: note?.lacks ?? [],
    saes: [],
    weight: endpoint.weight,
    priority: endpoint.priority,
  };
}
