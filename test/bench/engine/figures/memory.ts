import { BARS, type FigureRow } from "../bars.ts";
import { SAE_FEATURES, type BenchedModel } from "../benched-model.ts";
import { engine, SAE_ID, withServers } from "../servers.ts";
import type { ServerProcess } from "../server-process.ts";
import { slope, type Point } from "../statistics.ts";
import { streamedRequest, type StreamedRequest } from "../streamed-request.ts";
import { chatRequest } from "../workload.ts";
import type { BenchRun } from "./bench-run.ts";

const PARALLEL = 16;
const SAMPLES = 60;
/** Share of the requests during which heaps and pools find their size. */
const WARM_UP = 0.4;
const MEBIBYTE = 1024 * 1024;

/** Resident memory of the engine over many requests: whole streams, steered and sensing ones, and clients that leave. */
export function memory(model: BenchedModel, run: BenchRun): Promise<FigureRow> {
  const { requests } = run.flags;
  run.say(`memory over ${requests} requests, ${model.name}`);
  return withServers([engine({ model, slots: PARALLEL, threads: 0 })], async (server) => {
    if (server === undefined) throw new Error("no engine");
    const points = await residentOver(server, run);
    const steady = points.filter(({ x }) => x >= requests * WARM_UP);
    const [first, last] = [steady[0], steady.at(-1)];
    return {
      figure: `memory over ${requests} requests, a third of them left`,
      model: model.name,
      measure: "bytes a request",
      value: slope(steady),
      bar: BARS.memoryPerRequest,
      of: {
        "MiB at the start": (points[0]?.y ?? NaN) / MEBIBYTE,
        "MiB after warm-up": (first?.y ?? NaN) / MEBIBYTE,
        "MiB at the end": (last?.y ?? NaN) / MEBIBYTE,
      },
      series: points.map(({ x, y }) => [x, Number((y / MEBIBYTE).toFixed(2))]),
    };
  });
}

async function residentOver(server: ServerProcess, run: BenchRun): Promise<Point[]> {
  const { requests } = run.flags;
  const step = Math.max(1, Math.floor(requests / SAMPLES));
  const points: Point[] = [{ x: 0, y: server.residentBytes }];
  let begun = 0;
  let ended = 0;
  const worker = async () => {
    while (begun < requests) {
      await streamedRequest(server, requestOf((begun += 1), run.numbers.next()));
      ended += 1;
      if (ended % step !== 0) continue;
      points.push({ x: ended, y: server.residentBytes });
      if (points.length % 10 === 0) run.say(`  ${ended}: ${((points.at(-1)?.y ?? 0) / MEBIBYTE).toFixed(1)} MiB`);
    }
  };
  await Promise.all(Array.from({ length: PARALLEL }, worker));
  return points;
}

/** Six kinds in turn; clients leave at the head of the answer, or in the midst of it. */
function requestOf(place: number, number: number): StreamedRequest {
  const features = [{ index: number % SAE_FEATURES, strength: 3 }];
  const kinds: readonly (() => StreamedRequest)[] = [
    () => chatRequest(number, { max_tokens: 12 }),
    () => chatRequest(number, { max_tokens: 12, steering: { sae_id: SAE_ID, features } }),
    () => ({ ...chatRequest(number, { max_tokens: 400 }), abortAfterBytes: 1 }),
    () =>
      chatRequest(number, { max_tokens: 12, return_sae_activations: { sae_id: SAE_ID, top_k: 8, positions: "all" } }),
    () => chatRequest(number, { max_tokens: 12, logprobs: true, top_logprobs: 5 }),
    () => ({ ...chatRequest(number, { max_tokens: 400 }), abortAfterBytes: 4_000 }),
  ];
  return (kinds[place % kinds.length] ?? chatRequest.bind(null, number))();
}
