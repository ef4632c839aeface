import { BARS, type FigureRow } from "../bars.ts";
import type { BenchedModel } from "../benched-model.ts";
import { engine, llamaServer, withServers } from "../servers.ts";
import type { ServerProcess } from "../server-process.ts";
import { alternating, median } from "../statistics.ts";
import { streamedRequest } from "../streamed-request.ts";
import { tokensRequest } from "../workload.ts";
import type { BenchRun } from "./bench-run.ts";

const PROMPT_TOKENS = 512;
/** Requests of one side in a round. */
const REQUESTS_PER_ROUND = 5;

/** Time to the first text of one stream with a prompt of 512 tokens that nothing has been seen of, at the client. */
export function firstToken(model: BenchedModel, run: BenchRun): Promise<FigureRow> {
  run.say(`first token after ${PROMPT_TOKENS} tokens, ${model.name}`);
  const size = { model, slots: 1, threads: run.flags.threads };
  return withServers([engine(size), llamaServer(size)], async (...servers) => {
    const times = new Map<string, number[]>(servers.map(({ name }) => [name, []]));
    const cpuMs = new Map<string, number[]>(servers.map(({ name }) => [name, []]));
    // The first round warms up and does not count.
    for (let round = 0; round <= run.flags.rounds; round++) {
      for (const server of alternating(servers, round)) {
        const cpuBefore = server.cpuSeconds;
        const taken = await timesOf(server, model, run);
        if (round === 0) continue;
        times.get(server.name)?.push(...taken);
        cpuMs.get(server.name)?.push(((server.cpuSeconds - cpuBefore) * 1_000) / taken.length);
      }
    }
    const of = (all: ReadonlyMap<string, number[]>, name: string) => median(all.get(name) ?? []);
    const [ours, theirs] = [of(times, "engine"), of(times, "llama-server")];
    const [ourCpu, theirCpu] = [of(cpuMs, "engine"), of(cpuMs, "llama-server")];
    run.say(`  engine ${ours.toFixed(1)} ms, llama-server ${theirs.toFixed(1)} ms`);
    return {
      figure: `first token, ${PROMPT_TOKENS}-token prompt`,
      model: model.name,
      measure: "× llama-server",
      value: ours / theirs,
      bar: BARS.firstToken,
      of: {
        "by CPU time": ourCpu / theirCpu,
        "engine ms": ours,
        "llama-server ms": theirs,
        "engine CPU ms": ourCpu,
        "llama-server CPU ms": theirCpu,
      },
    };
  });
}

async function timesOf(server: ServerProcess, model: BenchedModel, run: BenchRun): Promise<number[]> {
  const times: number[] = [];
  for (let i = 0; i < REQUESTS_PER_ROUND; i++) {
    const request = tokensRequest(run.numbers.next(), PROMPT_TOKENS, model.vocabularySize);
    const { firstTextMs, promptTokens } = await streamedRequest(server, request);
    if (promptTokens !== PROMPT_TOKENS) throw new Error(`${server.name} read ${promptTokens} prompt tokens`);
    times.push(firstTextMs);
  }
  return times;
}
