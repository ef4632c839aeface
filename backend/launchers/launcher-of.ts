import path from "node:path";
import type { HostConfig, ModelConfig } from "../config.ts";
import type { EngineOptions } from "../ports/engine-options.ts";
import type { OperatorWishes } from "../ports/operator-wishes.ts";
import type { Launcher } from "../supervisor/launcher.ts";
import { nativeLauncher } from "./native.ts";
import { simLauncher } from "./sim.ts";

export interface LauncherDeps {
  /** The program that engine processes are started from. */
  readonly program: string;
  /** What operators have changed of this model by now. */
  readonly wishes: () => Promise<OperatorWishes>;
}

function speculationOf(model: ModelConfig, config: HostConfig): EngineOptions["speculation"] {
  const draft = model.speculative_model ?? config.speculative_model ?? null;
  const method = model.speculative_method ?? config.speculative_method ?? (draft === null ? "off" : "draft_model");
  if (method === "off") return null;
  return {
    num_tokens: model.speculative_num_tokens ?? config.speculative_num_tokens,
    model_path: method === "draft_model" ? draft : null,
  };
}

/** The launcher of a configured model, with the host's defaults where the model says nothing itself. */
export function launcherOf(model: ModelConfig, config: HostConfig, { program, wishes }: LauncherDeps): Launcher {
  const slots = model.slots ?? config.slots;
  const maxPending = model.max_pending ?? config.max_pending;
  const contextLength = model.context_length ?? config.context_length;
  if (model.engine === "sim")
    return simLauncher({ model: model.name, slots, maxPending, contextLength, script: model.sim, program });
  return nativeLauncher({
    program,
    wishes,
    engine: {
      model: model.name,
      model_path: model.source ?? "",
      saes: configuredSaes(model),
      monitoring: config.monitoring,
      profiles: [...model.profiles],
      min_explained_variance: config.min_explained_variance,
      fidelity_folder: path.join(config.data, "fidelity"),
      allow_grammar: config.allow_grammar,
      slots,
      max_pending: maxPending,
      context_length: contextLength,
      kv_cache_type: model.kv_cache_type ?? config.kv_cache_type,
      kv_layout: model.kv_layout ?? config.kv_layout,
      flash_attention: model.flash_attention ?? config.flash_attention,
      enable_embeddings: model.enable_embeddings ?? config.enable_embeddings,
      threads: model.threads ?? config.threads,
      device: model.device ?? config.device,
      gpu_layers: model.gpu_layers ?? config.gpu_layers,
      tensor_split: [...(model.tensor_split ?? config.tensor_split)],
      speculation: speculationOf(model, config),
      log_level: config.logging.level,
      // The host reads these lines and writes them in its own format.
      log_format: "json",
    },
  });
}

/** The SAEs of the configuration as engines load them. */
export function configuredSaes({ saes }: ModelConfig): EngineOptions["saes"] {
  return saes.map((sae) => ({
    id: sae.id,
    path: sae.source,
    layer: sae.layer ?? null,
    calibration_text: sae.calibration_text ?? null,
    serve_anyway: sae.serve_anyway,
    required: true,
  }));
}
