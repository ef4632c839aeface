import { fileURLToPath } from "node:url";
import { Command } from "commander";
import { ConfigError } from "../../shared/config/read-config.ts";
import { createLogger } from "../../shared/logging/logger.ts";
import { loadHostConfig } from "../config.ts";
import { systemClock } from "../system-clock.ts";
import { type RunningHost, startHost } from "./host.ts";

export function serveCommand(): Command {
  return new Command("serve")
    .description("Runs the host agent: engines for every model of the configuration, and reports to the edges.")
    .requiredOption("--config <file>", "the host's YAML configuration (backend/CONFIG.md)")
    .action(async (flags: { config: string }) => serve(flags.config));
}

async function serve(file: string): Promise<void> {
  const config = loadHostConfig(file, process.env);
  const logger = createLogger({
    level: config.logging.level,
    format: config.logging.format,
    clock: systemClock,
    write: (line) => void process.stderr.write(`${line}\n`),
    fields: { host: config.host },
  });
  for (const warning of config.warnings) logger.warn(warning);
  if (config.models.length === 0) logger.warn("the configuration names no models, so nothing is served");
  if (config.servers.length === 0)
    logger.warn("the configuration names no servers, so no edge will learn of this host");
  const program = fileURLToPath(new URL("../main.js", import.meta.url));
  const signals = stopSignals();
  let host: RunningHost;
  try {
    host = await startHost({ config, clock: systemClock, logger, program });
  } catch (error) {
    const reason = addressFault(error);
    if (reason !== null) throw new ConfigError(`listen: cannot listen on ${config.listen}: ${reason}`);
    throw error;
  }
  logger.info("listening", { address: config.listenAddress.address, port: host.port, models: config.models.length });
  signals.tell({
    first: () => {
      host.stop().then(
        () => process.exit(0),
        (error: unknown) => {
          logger.error("stopping failed", {}, error);
          process.exit(1);
        },
      );
    },
    second: () => {
      // What ended is on disk already.
      host.abort();
      process.exit(0);
    },
  });
}

interface StopHandlers {
  readonly first: () => void;
  readonly second: () => void;
}

/** SIGTERM and SIGINT from now on; whoever is told later hears of those that came before. */
function stopSignals(): { tell(handlers: StopHandlers): void } {
  let count = 0;
  let told = 0;
  let handlers: StopHandlers | null = null;
  const pass = (): void => {
    if (handlers === null) return;
    for (; told < Math.min(count, 2); told++) {
      if (told === 0) handlers.first();
      else handlers.second();
    }
  };
  const onSignal = (): void => {
    count++;
    pass();
  };
  process.on("SIGTERM", onSignal);
  process.on("SIGINT", onSignal);
  return {
    tell(given) {
      handlers = given;
      pass();
    },
  };
}

/** Why an address cannot be listened on; null when that is not what went wrong. */
function addressFault(error: unknown): string | null {
  if (!(error instanceof Error) || !("syscall" in error && "code" in error)) return null;
  if (error.syscall !== "listen" && error.syscall !== "getaddrinfo") return null;
  if (error.code === "EADDRINUSE") return "the address is in use";
  if (error.code === "EADDRNOTAVAIL") return "this machine does not have that address";
  if (error.code === "EACCES") return "not permitted";
  return String(error.code);
}
