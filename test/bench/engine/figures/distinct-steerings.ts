import { BARS, type FigureRow } from "../bars.ts";
import { SAE_FEATURES, type BenchedModel } from "../benched-model.ts";
import { compare, mediansOf, rateRatio } from "../burst.ts";
import { engine, SAE_ID, withServers } from "../servers.ts";
import { chatRequest } from "../workload.ts";
import type { BenchRun } from "./bench-run.ts";

const REQUESTS = 16;

/** Sixteen requests with sixteen steerings in one batch, against the same one after the other. */
export function distinctSteerings(model: BenchedModel, run: BenchRun): Promise<FigureRow> {
  run.say(`${REQUESTS} steerings together and one by one, ${model.name}`);
  return withServers([engine({ model, slots: REQUESTS, threads: run.flags.threads })], async (server) => {
    if (server === undefined) throw new Error("no engine");
    const requests = () =>
      Array.from({ length: REQUESTS }, (_, i) => {
        const features = [{ index: (i * 31) % SAE_FEATURES, strength: i - 8 }];
        return chatRequest(run.numbers.next(), { steering: { sae_id: SAE_ID, features } });
      });
    const sides = [
      { name: "together", server, requests },
      { name: "one by one", server, requests, together: false },
    ];
    const rounds = await compare(sides, run.flags.rounds, run.say);
    return {
      figure: `${REQUESTS} steerings together`,
      model: model.name,
      measure: "× one by one",
      value: rateRatio(rounds, "together", "one by one"),
      bar: model.name === "85m" ? BARS.distinctSteerings : null,
      of: mediansOf(rounds),
    };
  });
}
