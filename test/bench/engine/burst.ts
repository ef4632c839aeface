import { performance } from "node:perf_hooks";
import type { ServerProcess } from "./server-process.ts";
import { alternating, median } from "./statistics.ts";
import { streamedRequest, type StreamedRequest } from "./streamed-request.ts";
import { ANSWER_TOKENS } from "./workload.ts";

/** How long one measurement lasts at least: a burst of a small model is over in a few hundredths of a second. */
const LEAST_SECONDS = 1;
const MOST_BURSTS = 24;

export interface Measured {
  readonly tokensPerSecond: number;
  readonly cpuUsPerToken: number;
}

/** One way to put the work: a server and what is sent to it at once. */
export interface Side {
  readonly name: string;
  readonly server: ServerProcess;
  /** New requests for each burst. */
  readonly requests: () => readonly StreamedRequest[];
  /** Whether they are sent together or each after the one before. */
  readonly together?: boolean;
}

/** What the rounds gave, by the name of the side. */
export type Rounds = ReadonlyMap<string, readonly Measured[]>;

/** Measures the sides in turn, `rounds` times, after two bursts each to warm up. */
export async function compare(sides: readonly Side[], rounds: number, say: (text: string) => void): Promise<Rounds> {
  let slowest = 0;
  for (const side of sides) await burstOf(side);
  for (const side of sides) slowest = Math.max(slowest, (await burstOf(side)).elapsed);
  const bursts = Math.min(MOST_BURSTS, Math.max(1, Math.ceil(LEAST_SECONDS / slowest)));
  const measured = new Map<string, Measured[]>(sides.map(({ name }) => [name, []]));
  for (let round = 0; round < rounds; round++) {
    for (const side of alternating(sides, round)) measured.get(side.name)?.push(await measure(side, bursts));
    const latest = [...measured].map(([name, all]) => `${name} ${all.at(-1)?.tokensPerSecond.toFixed(0)}`);
    say(`  round ${round + 1}: ${latest.join(", ")} tokens/s`);
  }
  return measured;
}

async function measure(side: Side, bursts: number): Promise<Measured> {
  const cpuBefore = side.server.cpuSeconds;
  let seconds = 0;
  let tokens = 0;
  for (let burst = 0; burst < bursts; burst++) {
    const { elapsed, count } = await burstOf(side);
    seconds += elapsed;
    tokens += count * ANSWER_TOKENS;
  }
  return { tokensPerSecond: tokens / seconds, cpuUsPerToken: ((side.server.cpuSeconds - cpuBefore) * 1e6) / tokens };
}

async function burstOf({ server, requests, together = true }: Side): Promise<{ elapsed: number; count: number }> {
  const burst = requests();
  const startMs = performance.now();
  if (together) await Promise.all(burst.map((request) => answered(server, request)));
  else for (const request of burst) await answered(server, request);
  return { elapsed: (performance.now() - startMs) / 1_000, count: burst.length };
}

async function answered(server: ServerProcess, request: StreamedRequest): Promise<void> {
  const { completionTokens } = await streamedRequest(server, request);
  if (completionTokens === ANSWER_TOKENS) return;
  throw new Error(`${server.name} made ${completionTokens} tokens instead of ${ANSWER_TOKENS}`);
}

/** Median over the rounds of one side's rate over the other's in the same round, which a drifting machine moves little. */
export function rateRatio(rounds: Rounds, name: string, over: string): number {
  const others = rounds.get(over) ?? [];
  return median(
    (rounds.get(name) ?? []).map(({ tokensPerSecond }, i) => tokensPerSecond / (others[i]?.tokensPerSecond ?? NaN)),
  );
}

/** The same of the CPU time of a token, turned round: it tells the sides apart even when others use the cores. */
export function cpuRatio(rounds: Rounds, name: string, over: string): number {
  const others = rounds.get(over) ?? [];
  return median(
    (rounds.get(name) ?? []).map(({ cpuUsPerToken }, i) => (others[i]?.cpuUsPerToken ?? NaN) / cpuUsPerToken),
  );
}

/** The medians of every side, as a result row names them. */
export function mediansOf(rounds: Rounds): Record<string, number> {
  return Object.fromEntries(
    [...rounds].flatMap(([name, all]) => [
      [`${name} tokens/s`, median(all.map(({ tokensPerSecond }) => tokensPerSecond))],
      [`${name} CPU µs/token`, median(all.map(({ cpuUsPerToken }) => cpuUsPerToken))],
    ]),
  );
}
