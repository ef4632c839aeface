import { BARS, type FigureRow } from "../bars.ts";
import type { BenchedModel } from "../benched-model.ts";
import { compare, mediansOf, rateRatio, type Side } from "../burst.ts";
import { engine, llamaServer, withServers } from "../servers.ts";
import type { ServerProcess } from "../server-process.ts";
import { chatRequest } from "../workload.ts";
import type { BenchRun } from "./bench-run.ts";

/** Total tokens per second of parallel streams, over llama-server's. */
export async function throughput(model: BenchedModel, run: BenchRun): Promise<FigureRow[]> {
  const rows: FigureRow[] = [];
  for (const streams of run.flags.streams) {
    rows.push(await atStreams(`throughput, ${streams} streams`, { model, streams, threads: run.flags.threads }, run));
  }
  // Of so small a model the product takes one thread, since threads that wait for one another cost more than they save.
  if (model.name === "demo") {
    const streams = run.flags.streams.at(-1) ?? 1;
    const size = { model, streams, threads: 0 };
    rows.push({
      ...(await atStreams(`throughput, ${streams} streams, threads as each chooses`, size, run)),
      bar: null,
    });
  }
  return rows;
}

interface Size {
  readonly model: BenchedModel;
  readonly streams: number;
  readonly threads: number;
}

function atStreams(figure: string, { model, streams, threads }: Size, run: BenchRun): Promise<FigureRow> {
  run.say(`${figure}, ${model.name}`);
  const size = { model, slots: streams, threads };
  return withServers([engine(size), llamaServer(size)], async (...servers) => {
    const side = (server: ServerProcess): Side => ({
      name: server.name,
      server,
      requests: () => Array.from({ length: streams }, () => chatRequest(run.numbers.next())),
    });
    const rounds = await compare(servers.map(side), run.flags.rounds, run.say);
    return {
      figure,
      model: model.name,
      measure: "× llama-server",
      value: rateRatio(rounds, "engine", "llama-server"),
      bar: BARS.throughput[model.name],
      of: mediansOf(rounds),
    };
  });
}
