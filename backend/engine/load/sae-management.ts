import { ApiError } from "../../../shared/errors/api-error.ts";
import { apiErrorOfZod } from "../../../shared/errors/zod-error.ts";
import type { AttachedSae } from "../../../shared/protocol/report.ts";
import { attachSaeSchema } from "../../ports/operator-wishes.ts";
import { SaeFileError } from "../../sae/sae-file-error.ts";
import type { LoadedSae } from "../engine-model.ts";
import type { SaeRegistry } from "../sae-registry.ts";
import { HooksRefused } from "./hooks-refused.ts";
import { loadSae, type LoadDeps } from "./load-saes.ts";

export interface SaeManagementDeps extends LoadDeps {
  readonly registry: SaeRegistry;
  /** Why the model's residual stream cannot be used, or null. */
  readonly hookRefusal: string | null;
  /** The list has changed: whoever listens to this engine must know. */
  readonly onChange: () => void;
}

/** Attaches, swaps and detaches SAEs while requests run; those that run keep what they began with. */
export class SaeManagement {
  readonly #deps: SaeManagementDeps;

  constructor(deps: SaeManagementDeps) {
    this.#deps = deps;
  }

  /** An SAE of the same id is swapped. Throws `invalid_value` with what does not fit. */
  async attach(document: unknown): Promise<AttachedSae> {
    const { registry, hookRefusal, onChange } = this.#deps;
    const read = attachSaeSchema.safeParse(document);
    if (!read.success) throw apiErrorOfZod(read.error);
    const { id, path } = read.data;
    try {
      if (hookRefusal !== null) throw new HooksRefused(hookRefusal);
      const sae = await loadSae(
        {
          id,
          path,
          layer: read.data.layer ?? null,
          calibration_text: read.data.calibration_text ?? null,
          serve_anyway: read.data.serve_anyway ?? false,
          required: false,
        },
        this.#deps,
      );
      if ("reason" in sae) throw new SaeFileError(path, sae.reason);
      registry.attach(sae);
      onChange();
      return attachedSaeOf(sae);
    } catch (thrown) {
      if (!(thrown instanceof SaeFileError) && !(thrown instanceof HooksRefused)) throw thrown;
      throw new ApiError("invalid_value", { message: thrown.message, param: "path", cause: thrown });
    }
  }

  /** Throws `sae_not_available` when no SAE has this id. */
  detach(id: string): void {
    const { registry, onChange, logger } = this.#deps;
    if (!registry.detach(id)) {
      throw new ApiError("sae_not_available", { message: `No SAE '${id}' is attached.`, param: "id" });
    }
    logger.info("SAE detached", { sae: id });
    onChange();
  }
}

/** An SAE as hosts and edges hear of it. */
export function attachedSaeOf({ id, digest, layer, hookPoint, featureCount, fidelity }: LoadedSae): AttachedSae {
  return { id, digest, layer, hook_point: hookPoint, d_sae: featureCount, fidelity };
}
