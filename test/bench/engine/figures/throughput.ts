import { BARS, type FigureRow } from "../bars.ts";
import type { BenchedModel } from "../benched-model.ts";
import { compare, cpuRatio, mediansOf, rateRatio, type Side } from "../burst.ts";
import { engine, llamaServer, withServers } from "../servers.ts";
import type { ServerProcess } from "../server-process.ts";
import type { StreamedRequest } from "../streamed-request.ts";
import { chatRequest, completionRequest } from "../workload.ts";
import type { BenchRun } from "./bench-run.ts";

/** Total tokens per second of parallel streams, over llama-server's. */
export async function throughput(model: BenchedModel, run: BenchRun): Promise<FigureRow[]> {
  const rows: FigureRow[] = [];
  const { streams: all, threads } = run.flags;
  for (const streams of all) {
    rows.push(
      await atStreams(`throughput, ${streams} streams`, { model, streams, threads, request: completionRequest }, run),
    );
  }
  const streams = all.at(-1) ?? 1;
  // What a template and the reading of messages cost either side.
  const overChat = { model, streams, threads, request: chatRequest };
  rows.push({ ...(await atStreams(`throughput of chats, ${streams} streams`, overChat, run)), bar: null });
  // Of so small a model the product takes one thread, since threads that wait for one another cost more than they save.
  if (model.name === "demo") {
    const figure = `throughput, ${streams} streams, threads as each chooses`;
    rows.push({
      ...(await atStreams(figure, { model, streams, threads: 0, request: completionRequest }, run)),
      bar: null,
    });
  }
  return rows;
}

interface Work {
  readonly model: BenchedModel;
  readonly streams: number;
  readonly threads: number;
  readonly request: (number: number) => StreamedRequest;
}

function atStreams(figure: string, { model, streams, threads, request }: Work, run: BenchRun): Promise<FigureRow> {
  run.say(`${figure}, ${model.name}`);
  const size = { model, slots: streams, threads };
  return withServers([engine(size), llamaServer(size)], async (...servers) => {
    const side = (server: ServerProcess): Side => ({
      name: server.name,
      server,
      requests: () => Array.from({ length: streams }, () => request(run.numbers.next())),
    });
    const rounds = await compare(servers.map(side), run.flags.rounds, run.say);
    return {
      figure,
      model: model.name,
      measure: "× llama-server",
      value: rateRatio(rounds, "engine", "llama-server"),
      bar: BARS.throughput[model.name],
      of: { "by CPU time": cpuRatio(rounds, "engine", "llama-server"), ...mediansOf(rounds) },
    };
  });
}
