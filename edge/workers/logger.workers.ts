import { createLogger, type Logger } from "../../shared/logging/logger.ts";
import type { EdgeConfig } from "../config.ts";
import { workersClock } from "./clock.workers.ts";

/** The runtime collects what is written to the console. */
export function workersLogger({ logging }: EdgeConfig): Logger {
  return createLogger({
    level: logging.level,
    format: logging.format,
    clock: workersClock,
    // oxlint-disable-next-line no-console -- the console is the log of this runtime
    write: (line) => console.log(line),
  });
}
