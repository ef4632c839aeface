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
  let host: RunningHost;
  try {
    host = await startHost({ config, clock: systemClock, logger, program });
  } catch (error) {
    if (isAddressFault(error)) throw new ConfigError(`cannot listen on ${config.listen}: ${error.code}`);
    throw error;
  }
  logger.info("listening", { address: config.listenAddress.address, port: host.port, models: config.models.length });
  let asked = false;
  const end = (): void => {
    // A second signal ends at once; what ended is on disk already, and engines end with this process.
    if (asked) process.exit(0);
    asked = true;
    host.stop().then(
      () => process.exit(0),
      (error: unknown) => {
        logger.error("stopping failed", {}, error);
        process.exit(1);
      },
    );
  };
  process.on("SIGTERM", end);
  process.on("SIGINT", end);
}

function isAddressFault(error: unknown): error is Error & { code: string } {
  if (!(error instanceof Error) || !("code" in error)) return false;
  return error.code === "EADDRINUSE" || error.code === "EADDRNOTAVAIL" || error.code === "EACCES";
}
