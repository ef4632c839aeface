import type { Command } from "commander";
import type { EdgeConfig } from "../../config.ts";
import { dollars } from "../../limits/dollars.ts";
import { NO_SCOPE_LIMITS, type ScopeLimits } from "../../ports/limits.ts";
import { OperatorError } from "../operator-error.ts";
import { readRate, readUsd } from "./input.ts";

/** As commander gives them: text that nobody has read yet. */
export interface LimitOptions {
  readonly rpm?: string;
  readonly tpm?: string;
  readonly budgetUsd?: string;
  readonly budgetDayUsd?: string;
  readonly budgetMonthUsd?: string;
}

/** Takes a limit away that was set before. */
const NONE = "none";

/** The same options for keys, projects and accounts, to make one and to change one. */
export function withLimitOptions(command: Command): Command {
  return command
    .option("--rpm <n>", "requests per minute; 0 is unlimited, none takes the limit away")
    .option("--tpm <n>", "tokens per minute; 0 is unlimited, none takes the limit away")
    .option("--budget-usd <amount>", "dollars that it may cost in all; 0 refuses everything, none is no budget")
    .option("--budget-day-usd <amount>", "the same for each day in UTC")
    .option("--budget-month-usd <amount>", "the same for each month in UTC");
}

/** The limits that are named. */
export function readLimits(options: LimitOptions): Partial<ScopeLimits> {
  const { rpm, tpm, budgetUsd, budgetDayUsd, budgetMonthUsd } = options;
  return {
    ...(rpm === undefined ? {} : { requestsPerMinute: unlessNone(rpm, "--rpm", readRate) }),
    ...(tpm === undefined ? {} : { tokensPerMinute: unlessNone(tpm, "--tpm", readRate) }),
    ...(budgetUsd === undefined ? {} : { budgetNanoUsd: unlessNone(budgetUsd, "--budget-usd", readUsd) }),
    ...(budgetDayUsd === undefined ? {} : { budgetDayNanoUsd: unlessNone(budgetDayUsd, "--budget-day-usd", readUsd) }),
    ...(budgetMonthUsd === undefined
      ? {}
      : { budgetMonthNanoUsd: unlessNone(budgetMonthUsd, "--budget-month-usd", readUsd) }),
  };
}

/** All limits of something new: those not named are not set. */
export const readNewLimits = (options: LimitOptions): ScopeLimits => ({ ...NO_SCOPE_LIMITS, ...readLimits(options) });

/** A command that changes something and is told nothing is a mistake. */
export function assertChange(change: Partial<ScopeLimits>, band?: string): void {
  if (Object.keys(change).length === 0 && band === undefined)
    throw new OperatorError("name at least one limit to change; --help lists them.");
}

/** The highest band; `none` is any. */
export function readBand(text: string, config: EdgeConfig): string | null {
  if (text === NONE) return null;
  const names = config.router.admission.bands.map(({ name }) => name);
  if (names.includes(text)) return text;
  throw new OperatorError(`--band: there is no band '${text}'; there are ${names.join(", ")}.`);
}

/** Members of a JSON line. */
export function limitEntry(limits: ScopeLimits): Record<string, unknown> {
  return {
    rpm: limits.requestsPerMinute,
    tpm: limits.tokensPerMinute,
    budget_nano_usd: limits.budgetNanoUsd,
    budget_day_nano_usd: limits.budgetDayNanoUsd,
    budget_month_nano_usd: limits.budgetMonthNanoUsd,
  };
}

/** For people: what is set, in a few words. */
export function limitText(limits: ScopeLimits): string {
  const parts = [
    rateText(limits.requestsPerMinute, "rpm"),
    rateText(limits.tokensPerMinute, "tpm"),
    budgetText(limits.budgetDayNanoUsd, "a day"),
    budgetText(limits.budgetMonthNanoUsd, "a month"),
    budgetText(limits.budgetNanoUsd, "in all"),
  ].filter((part) => part !== null);
  return parts.length === 0 ? "no limits of its own" : parts.join(", ");
}

function rateText(perMinute: number | null, unit: string): string | null {
  if (perMinute === null) return null;
  return perMinute === 0 ? `unlimited ${unit}` : `${perMinute} ${unit}`;
}

const budgetText = (nanoUsd: string | null, period: string): string | null =>
  nanoUsd === null ? null : `$${dollars(BigInt(nanoUsd))} ${period}`;

function unlessNone<Value>(text: string, option: string, read: (text: string, option: string) => Value): Value | null {
  return text === NONE ? null : read(text, option);
}
