import { BARS, type Bar, type FigureRow } from "../bars.ts";
import { SAE_FEATURES, type BenchedModel } from "../benched-model.ts";
import { compare, cpuRatio, mediansOf, rateRatio } from "../burst.ts";
import { engine, SAE_ID, withServers } from "../servers.ts";
import { chatRequest } from "../workload.ts";
import type { BenchRun } from "./bench-run.ts";

const STREAMS = 4;

interface HookedWork {
  readonly figure: string;
  readonly bar: Bar;
  /** Members of the request that ask for it. */
  readonly members: (number: number) => object;
}

const STEERED: HookedWork = {
  figure: "every request steered at one layer",
  bar: BARS.steered,
  members: (number) => ({ steering: { sae_id: SAE_ID, features: [{ index: number % SAE_FEATURES, strength: 2 }] } }),
};
const SENSES_EIGHT: HookedWork = {
  figure: "every request senses 8 features",
  bar: BARS.sensesEight,
  members: (number) => {
    const features = Array.from({ length: 8 }, (_, i) => (number + i * 61) % SAE_FEATURES);
    return { return_sae_activations: { sae_id: SAE_ID, features, positions: "all" } };
  },
};
const SENSES_TOP: HookedWork = {
  figure: "every request encodes 512 features, top 16",
  bar: BARS.sensesTop,
  members: () => ({ return_sae_activations: { sae_id: SAE_ID, top_k: 16, positions: "all" } }),
};

export function steering(model: BenchedModel, run: BenchRun): Promise<FigureRow[]> {
  return hooked(model, [STEERED], run);
}

export function sensing(model: BenchedModel, run: BenchRun): Promise<FigureRow[]> {
  return hooked(model, [SENSES_EIGHT, SENSES_TOP], run);
}

/** How much longer the same answers take with hooked work than without, through HTTP. */
async function hooked(model: BenchedModel, works: readonly HookedWork[], run: BenchRun): Promise<FigureRow[]> {
  return withServers([engine({ model, slots: STREAMS, threads: run.flags.threads })], async (server) => {
    const rows: FigureRow[] = [];
    if (server === undefined) return rows;
    for (const { figure, bar, members } of works) {
      run.say(`${figure}, ${model.name}`);
      const requests = (more: (number: number) => object) => () =>
        Array.from({ length: STREAMS }, () => {
          const number = run.numbers.next();
          return chatRequest(number, more(number));
        });
      const sides = [
        { name: "plain", server, requests: requests(() => ({})) },
        { name: "hooked", server, requests: requests(members) },
      ];
      const rounds = await compare(sides, run.flags.rounds, run.say);
      rows.push({
        figure: `${figure}, ${STREAMS} streams`,
        model: model.name,
        measure: "longer",
        value: rateRatio(rounds, "plain", "hooked") - 1,
        bar,
        of: { "by CPU time": cpuRatio(rounds, "plain", "hooked") - 1, ...mediansOf(rounds) },
      });
    }
    return rows;
  });
}
