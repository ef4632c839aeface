import { isDeepStrictEqual } from "node:util";
import { ConfigError } from "../../shared/config/read-config.ts";
import type { Logger } from "../../shared/logging/logger.ts";
import type { EdgeConfig } from "../config.ts";
import type { LoadedConfig } from "./load-config.ts";

type Read = (config: EdgeConfig) => unknown;

/** What an edge cannot change while it runs: sockets, files, its name, and how its ledger was opened. */
const FIXED: Readonly<Record<string, Read>> = {
  name: ({ name }) => name,
  listen: ({ listen }) => listen,
  admin_listen: ({ admin_listen }) => admin_listen,
  metrics_listen: ({ metrics_listen }) => metrics_listen,
  agent_listen: ({ agent_listen }) => agent_listen,
  data: ({ data }) => data,
  "auth.store": ({ auth }) => auth.store,
  "auth.flush_interval": ({ auth }) => auth.flush_interval,
  "auth.batch_size": ({ auth }) => auth.batch_size,
  "auth.buffer_size": ({ auth }) => auth.buffer_size,
  "control.lease_ttl": ({ control }) => control.lease_ttl,
  "logging.format": ({ logging }) => logging.format,
};

/** Keys that differ and hold from the start of the process on. */
export function fixedChanges(before: EdgeConfig, after: EdgeConfig): readonly string[] {
  return Object.entries(FIXED).flatMap(([key, read]) => (isDeepStrictEqual(read(before), read(after)) ? [] : [key]));
}

export interface ReloadDeps {
  readonly logger: Logger;
  readonly current: () => EdgeConfig;
  /** Reads file and environment again. Rejects with ConfigError. */
  readonly load: () => Promise<LoadedConfig>;
  /** Whatever of the new configuration can fail; answers what makes it hold, in one go that cannot. */
  readonly prepare: (config: EdgeConfig) => Promise<() => void>;
}

export type ReloadResult = "applied" | "unchanged" | "refused";

/**
 * Applies a changed configuration to a running edge: whole, or not at all with the reason in the log. One at a time; asked
 * again meanwhile, it reads once more.
 */
export class Reload {
  readonly #deps: ReloadDeps;
  #last: Promise<ReloadResult> = Promise.resolve("unchanged");

  constructor(deps: ReloadDeps) {
    this.#deps = deps;
  }

  /** Never rejects. */
  request(): Promise<ReloadResult> {
    this.#last = this.#last.then(() => this.#reload());
    return this.#last;
  }

  async #reload(): Promise<ReloadResult> {
    const { logger, current, load, prepare } = this.#deps;
    try {
      const { config } = await load();
      if (isDeepStrictEqual(config, current())) {
        logger.info("the configuration is as it was");
        return "unchanged";
      }
      const fixed = fixedChanges(current(), config);
      if (fixed.length > 0) {
        logger.error("the configuration was not applied: these keys need a restart", { keys: fixed.join(", ") });
        return "refused";
      }
      const apply = await prepare(config);
      apply();
      logger.info("the new configuration holds");
      return "applied";
    } catch (thrown) {
      if (thrown instanceof ConfigError)
        logger.error("the configuration was not applied", { reason: thrown.message.replaceAll("\n", " ") });
      else logger.error("the configuration was not applied", {}, thrown);
      return "refused";
    }
  }
}
