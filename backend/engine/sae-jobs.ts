import type { ResidualEdit, SensingPlan } from "../native/binding.ts";
import type { SensingRequestPlan } from "../sae/sensing-plan.ts";
import type { SteeringPlan } from "../sae/steering-plan.ts";
import type { LoadedSae } from "./engine-model.ts";

/** A steering plan as the native core takes it. */
export function nativeEdits({ edits }: SteeringPlan<LoadedSae>): ResidualEdit[] {
  return edits.map(({ layer, reach, vector, terms, condition }) => {
    const { ranges, excludedTokens } = reach;
    return {
      layer,
      fromPosition: ranges[0]?.from ?? 0,
      toPosition: ranges.at(-1)?.to ?? -1,
      ranges: ranges.length > 1 ? Int32Array.from(ranges.flatMap(({ from, to }) => [from, to])) : null,
      excludedTokens,
      vector,
      terms: terms === null ? null : { ...terms, sae: terms.sae.native },
      condition:
        condition === null
          ? null
          : {
              sae: condition.sae.native,
              feature: condition.index,
              comparison: condition.op,
              value: condition.value,
            },
    };
  });
}

/** A sensing plan as the native core takes it. */
export function nativeSensing(plan: SensingRequestPlan<LoadedSae>): SensingPlan {
  const { sae, fromPosition, toPosition, readPoint, features, topK } = plan;
  return { sae: sae.native, layer: sae.layer, fromPosition, toPosition, readPoint, features, topK };
}
