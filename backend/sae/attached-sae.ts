import { ApiError } from "../../shared/errors/api-error.ts";

/** An SAE as the plans of one request see it. */
export interface AttachedSae {
  readonly id: string;
  /** SHA-256 over the tensors, in hex. */
  readonly digest: string;
  readonly layer: number;
  readonly hookPoint: string;
  readonly featureCount: number;
  readonly embeddingWidth: number;
  /** F rows of d values. */
  readonly decoderRows: Float32Array;
  /** Largest activation seen by feature, for those of which it is recorded. */
  readonly recordedMaxima?: ReadonlyMap<number, number>;
}

/** `demo-l1 (layer 1), demo-l2 (layer 2)`, for messages. */
export function namesOf(attached: readonly AttachedSae[]): string {
  return attached.length === 0 ? "none" : attached.map(({ id, layer }) => `${id} (layer ${layer})`).join(", ");
}

/**
 * The SAE that a request means; its id may be left out only where one SAE is attached. `param` is the member that
 * names it, such as `steering.sae_id`.
 */
export function resolveSae<Sae extends AttachedSae>(
  attached: readonly Sae[],
  id: string | null | undefined,
  param: string,
): Sae {
  if (id === null || id === undefined) {
    const [only, ...others] = attached;
    if (only !== undefined && others.length === 0) return only;
    if (only === undefined) {
      throw new ApiError("sae_not_available", { message: "No SAE is attached to this model.", param });
    }
    throw new ApiError("invalid_steering", {
      message: `'${param}' is required: several SAEs are attached: ${namesOf(attached)}.`,
      param,
    });
  }
  const found = attached.find((sae) => sae.id === id);
  if (found !== undefined) return found;
  throw new ApiError("sae_not_available", {
    message: `The SAE '${id}' is not attached to this model. Attached: ${namesOf(attached)}.`,
    param,
  });
}

export function checkFeatureIndex(sae: AttachedSae, index: number, param: string): void {
  if (index < sae.featureCount) return;
  throw new ApiError("invalid_feature_index", {
    message: `Feature ${index} is out of range: ${sae.id} has features 0 to ${sae.featureCount - 1}.`,
    param,
  });
}
