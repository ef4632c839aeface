import path from "node:path";
import type { HostConfig, ModelConfig } from "../config.ts";
import type { Launcher } from "../supervisor/launcher.ts";
import { nativeLauncher } from "./native.ts";
import { simLauncher } from "./sim.ts";

/** The launcher of a configured model, with the host's defaults where the model says nothing itself. */
export function launcherOf(model: ModelConfig, config: HostConfig, program: string): Launcher {
  const slots = model.slots ?? config.slots;
  const maxPending = model.max_pending ?? config.max_pending;
  const contextLength = model.context_length ?? config.context_length;
  if (model.engine === "sim")
    return simLauncher({ model: model.name, slots, maxPending, contextLength, script: model.sim, program });
  return nativeLauncher({
    program,
    engine: {
      model: model.name,
      model_path: model.source ?? "",
      saes: model.saes.map((sae) => ({
        id: sae.id,
        path: sae.source,
        layer: sae.layer ?? null,
        calibration_text: sae.calibration_text ?? null,
        serve_anyway: sae.serve_anyway,
      })),
      profiles: [...model.profiles],
      min_explained_variance: config.min_explained_variance,
      fidelity_folder: path.join(config.data, "fidelity"),
      allow_grammar: config.allow_grammar,
      slots,
      max_pending: maxPending,
      context_length: contextLength,
      kv_cache_type: model.kv_cache_type ?? config.kv_cache_type,
      flash_attention: model.flash_attention ?? config.flash_attention,
      threads: model.threads ?? config.threads,
      device: model.device ?? config.device,
      gpu_layers: model.gpu_layers ?? config.gpu_layers,
      tensor_split: [...(model.tensor_split ?? config.tensor_split)],
      log_level: config.logging.level,
      // The host reads these lines and writes them in its own format.
      log_format: "json",
    },
  });
}
