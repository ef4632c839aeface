import { z } from "zod";
import { type EngineOptions, saeOptionsSchema } from "./engine-options.ts";
import { watchListSchema } from "./watch-lists.ts";

/** What operators send to attach or swap an SAE of a running engine. */
export const attachSaeSchema = z.strictObject({
  id: z.string().min(1).max(256),
  /** Folder on the engine's machine. */
  path: z.string().min(1),
  /** Overrules what the SAE's own configuration says. */
  layer: z.int().min(0).nullish(),
  /** Text to measure its fidelity on; the one in its folder when left out. */
  calibration_text: z.string().min(1).nullish(),
  /** Serve it whatever its fidelity. */
  serve_anyway: z.boolean().nullish(),
});
export type AttachSae = z.infer<typeof attachSaeSchema>;

/** What operators have changed of one model, against its configuration. */
export const operatorWishesSchema = z.object({
  attached: z.array(saeOptionsSchema).default([]),
  /** Ids of configured SAEs. */
  detached: z.array(z.string()).default([]),
  watch_lists: z.array(watchListSchema).default([]),
});
export type OperatorWishes = z.infer<typeof operatorWishesSchema>;

export const NO_WISHES: OperatorWishes = { attached: [], detached: [], watch_lists: [] };

/** The SAEs to start with: those of the configuration, without what was detached, under what was attached. */
export function wishedSaes(configured: EngineOptions["saes"], { attached, detached }: OperatorWishes) {
  const kept = configured.filter(({ id }) => !detached.includes(id));
  const swapped = kept.map((sae) => attached.find(({ id }) => id === sae.id) ?? sae);
  return [...swapped, ...attached.filter(({ id }) => kept.every((sae) => sae.id !== id))];
}
