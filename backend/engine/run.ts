import { createLogger } from "../../shared/logging/logger.ts";
import type { NativeLogLevel } from "../native/binding.ts";
import { loadNative } from "../native/load.ts";
import type { EngineOptions } from "../ports/engine-options.ts";
import { systemClock } from "../system-clock.ts";
import { watchForStall } from "./load/stall-watch.ts";
import { startEngine } from "./load/start-engine.ts";

/** Longest time that running requests get after SIGTERM. */
const DRAIN_MS = 30_000;

/** llama.cpp tells a hundred lines at every load, and warns of settings that are chosen on purpose. */
const LOG_LEVEL_OF = { debug: "debug", info: "debug", warn: "info", error: "error" } as const;

/**
 * The engine process: loads, listens on its socket, and resolves after SIGTERM or SIGINT, when what ran has finished
 * and all native memory is given back. A second signal ends it at once. Rejects with the reason when it cannot start.
 */
export async function runEngine(options: EngineOptions): Promise<void> {
  const clock = systemClock;
  const logger = createLogger({
    level: options.log_level,
    format: options.log_format,
    clock,
    write: (line) => process.stderr.write(`${line}\n`),
    fields: { engine: options.model },
  });
  const onLog = (level: NativeLogLevel, text: string) =>
    logger[LOG_LEVEL_OF[level]](text.trim(), { from: "llama.cpp" });
  const addon = await loadNative({ variant: options.device, onLog });
  const engine = await startEngine(options, { addon, clock, logger });
  const stopped = new Promise<void>((resolve, reject) => {
    let asked = false;
    const onSignal = () => {
      if (asked) process.exit(0);
      asked = true;
      logger.info("draining");
      engine.stop(DRAIN_MS).then(resolve, reject);
    };
    process.on("SIGTERM", onSignal).on("SIGINT", onSignal);
  });
  await engine.listen(options.socket_path);
  logger.info("listening");
  const stopWatching = watchForStall({
    clock,
    stalledMs: () => engine.stalledMs,
    onStall: () => {
      logger.error("the native core stands still; this process is ended, so that another can take its place");
      // An orderly exit would wait for the thread that does not come back.
      process.kill(process.pid, "SIGKILL");
    },
  });
  await stopped;
  stopWatching();
  logger.info("stopped");
}
