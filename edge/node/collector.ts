import { setFlagsFromString } from "node:v8";

/**
 * Sets V8's collector for a process that makes much and keeps little. While the program runs rather than on its command
 * line, where a V8 without one of these flags would not start at all: here it says so in a line and goes on.
 */
export function tuneCollector(): void {
  // By a quarter instead of fourfold: 60 MiB less under load, for a collection more often.
  setFlagsFromString("--heap-growing-percent=25");
  // The young generation is small (see bin/steerage.mjs): to wake helpers for it costs more than they do.
  setFlagsFromString("--no-parallel-scavenge");
}
