import type { Logger } from "../../shared/logging/logger.ts";
import type { Clock } from "../../shared/time/clock.ts";
import { originOf } from "./endpoint-digest.ts";
import { scrapedLoad, type ScrapedLoad } from "./scraped-load.ts";
import type { StaticEndpoint } from "./settings.ts";

/** Fetches a page as text. Rejects when it cannot be had in time or is no success. */
export type FetchText = (url: string, timeoutMs: number) => Promise<string>;

export interface ScrapeSettings {
  /** 0 is never. */
  readonly everyMs: number;
  readonly timeoutMs: number;
}

export interface EndpointScraperDeps {
  readonly clock: Clock;
  readonly logger: Logger;
  readonly fetchText: FetchText;
  readonly settings: ScrapeSettings;
  readonly endpoints: readonly StaticEndpoint[];
  /** `null`: what was known of the endpoint holds no more. */
  readonly onScraped: (endpointId: string, loads: ReadonlyMap<string, ScrapedLoad> | null) => void;
}

/** A page that is not there is asked for ever more rarely, up to this. */
const LONGEST_PAUSE_MS = 60_000;

/** Reads the metrics pages of static endpoints again and again. A server without one is served all the same. */
export class EndpointScraper {
  readonly #deps: EndpointScraperDeps;
  readonly #timers = new Map<string, () => void>();
  #closed = false;

  constructor(deps: EndpointScraperDeps) {
    this.#deps = deps;
  }

  start(): void {
    if (this.#deps.settings.everyMs === 0) return;
    for (const endpoint of this.#deps.endpoints) void this.#turn(endpoint, 0);
  }

  close(): void {
    this.#closed = true;
    for (const cancel of this.#timers.values()) cancel();
    this.#timers.clear();
  }

  /** Never rejects. */
  async #turn(endpoint: StaticEndpoint, failures: number): Promise<void> {
    const { clock, logger, settings, onScraped } = this.#deps;
    let failed = failures;
    try {
      const loads = await this.#loadsOf(endpoint);
      if (this.#closed) return;
      failed = loads.size === 0 ? failures + 1 : 0;
      onScraped(endpoint.id, loads.size === 0 ? null : loads);
      if (loads.size === 0 && failures === 0)
        logger.warn("a metrics page tells nothing under the engine's names", {
          endpoint: endpoint.id,
          engine: endpoint.engine || "vllm",
        });
    } catch (thrown) {
      if (this.#closed) return;
      failed = failures + 1;
      onScraped(endpoint.id, null);
      if (failures === 0)
        logger.info("a metrics page cannot be read", {
          endpoint: endpoint.id,
          reason: thrown instanceof Error ? thrown.message : "unknown",
        });
    }
    const pauseMs = Math.min(Math.max(LONGEST_PAUSE_MS, settings.everyMs), settings.everyMs * 2 ** failed);
    this.#timers.set(
      endpoint.id,
      clock.after(pauseMs, () => void this.#turn(endpoint, failed)),
    );
  }

  async #loadsOf(endpoint: StaticEndpoint): Promise<ReadonlyMap<string, ScrapedLoad>> {
    const { fetchText, settings } = this.#deps;
    const text = await fetchText(`${originOf(endpoint.url)}/metrics`, settings.timeoutMs);
    const loads = new Map<string, ScrapedLoad>();
    for (const model of endpoint.models) {
      const load = scrapedLoad(text, endpoint.engine ?? "", model);
      if (load !== null) loads.set(model, load);
    }
    return loads;
  }
}
