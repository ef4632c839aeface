import { randomBytes, randomInt } from "node:crypto";
import { ConfigError } from "../../../shared/config/read-config.ts";
import { MAX_SEED } from "../../../shared/openai/limits.ts";
import { randomBase62 } from "../../../shared/ids.ts";
import type { Logger } from "../../../shared/logging/logger.ts";
import type { SpeculationCounts } from "../../../shared/protocol/report.ts";
import type { Clock } from "../../../shared/time/clock.ts";
import type { ContextCounters, NativeAddon, NativeModel, StepEvents } from "../../native/binding.ts";
import type { EngineReady } from "../../ports/engine-events.ts";
import type { EngineOptions } from "../../ports/engine-options.ts";
import { FidelityCheck } from "../../inspect/fidelity-check.ts";
import { FidelityStore } from "../../inspect/fidelity-store.ts";
import { ResidualReader } from "../../inspect/residual-reader.ts";
import { EmbeddingQueue, INPUTS_PER_CALL } from "../embedding/embedding-queue.ts";
import { EmbeddingRuns } from "../embedding/embedding-runs.ts";
import type { EngineModel, LoadedSae } from "../engine-model.ts";
import { engineLoad } from "../events/engine-load.ts";
import { EventHub } from "../events/event-hub.ts";
import { LoadReporter } from "../events/load-reporter.ts";
import { RateMeter } from "../events/rate-meter.ts";
import { EngineServer } from "../http/engine-server.ts";
import { EngineLoop } from "../loop/engine-loop.ts";
import { Watching } from "../monitoring/watching.ts";
import { ChatPrompter } from "../openai/chat-prompt.ts";
import { FeatureRanker } from "../saes/feature-ranker.ts";
import { usableProfiles } from "../profiles.ts";
import { SaeRegistry } from "../sae-registry.ts";
import { contextSize, type ContextSize } from "./context-size.ts";
import { leastCopiedTokens, sizeWish } from "./kv-layout.ts";
import { openContext } from "./open-context.ts";
import { HooksRefused } from "./hooks-refused.ts";
import { loadSaes, type RefusedSae } from "./load-saes.ts";
import { physicalCores } from "./physical-cores.ts";
import { attachedSaeOf, SaeManagement } from "./sae-management.ts";
import { RunningEngine } from "./running-engine.ts";
import { threadCount } from "./thread-count.ts";

export interface EngineDeps {
  readonly addon: NativeAddon;
  readonly clock: Clock;
  readonly logger: Logger;
}

/** Above the edge's own limit, so that the edge's refusal is the one that callers see. */
const MAX_BODY_BYTES = 64 * 1024 * 1024;

/**
 * Loads model, SAEs and context and puts the HTTP face together; it does not listen yet. Throws what cannot be used
 * with the file and the reason: `SaeFileError`, `ConfigError`, `HooksRefused` or an error of the native core.
 */
export async function startEngine(options: EngineOptions, deps: EngineDeps): Promise<RunningEngine> {
  const { addon, clock, logger } = deps;
  const { model_path: path, gpu_layers: gpuLayers, tensor_split: tensorSplit } = options;
  if (!options.flash_attention && ["q8_0", "q4_0"].includes(options.kv_cache_type)) {
    throw new ConfigError(`kv_cache_type ${options.kv_cache_type} needs flash_attention`);
  }
  const open = (file: string) => addon.loadModel({ path: file, gpuLayers, useMmap: true, tensorSplit });
  const native = await open(path);
  const draftPath = options.speculation?.model_path ?? null;
  const draft = draftPath === null ? null : await open(draftPath);
  const wish = sizeWish(options, native.info);
  const wanted = contextSize(options.context_length, native.info.trainingContextLength, wish);
  const threads = threadCount(options.threads, native.info.parameterCount, await physicalCores());
  const check = fidelityCheck(options, native, threads, logger);
  const loader = { model: native.info, addon, check, logger };
  const { loaded, refused } = await loadSaes(options.saes, loader);
  const saes = new SaeRegistry(loaded);

  const rates = { prompt: new RateMeter(), completion: new RateMeter() };
  const onTokens = (kind: keyof typeof rates, count: number) => rates[kind].record(count, clock.monotonicMs());
  const onChange = () => reporter.changed();
  const onStep = (events: StepEvents) => loop.onStep(events);
  const accounts = options.accounts_path === null ? null : addon.openAccountBoard(options.accounts_path);
  const { context, size } = await openContext(
    native,
    wanted,
    { options, wish, threads, draft, accounts, onStep },
    logger,
  );
  const { slots, kv_cache_type: kvType } = options;
  const loop = new EngineLoop({
    slots,
    cellCount: size.cellCount,
    streams:
      size.layout === "streams"
        ? { leastCopy: leastCopiedTokens(size, native.info, { slots, threads, kvType }) }
        : null,
    maxPending: options.max_pending,
    reusesPrefixes: !native.info.recurrent && !native.info.hybrid,
    clock,
    accounts,
    onChange,
    onTokens,
  });
  loop.attach(context);
  const runs = new EmbeddingRuns(onChange, (count) => onTokens("prompt", count), accounts);
  const { hookRefusal } = context;
  // A model whose residual stream cannot be proven must not serve an SAE: better no engine than a wrong row.
  if (hookRefusal !== null && saes.attached.length > 0) throw new HooksRefused(hookRefusal);

  const told = () =>
    readyEvent(options, size, {
      loaded: saes.attached,
      // One that was attached since is not missing any more.
      refused: refused.filter(({ id }) => saes.attached.every((sae) => sae.id !== id)),
    });
  const hub = new EventHub(told());
  const management = new SaeManagement({
    ...loader,
    registry: saes,
    hookRefusal,
    onChange: () => hub.announce(told()),
  });
  const reporter = new LoadReporter(
    clock,
    () =>
      engineLoad({
        running: [...loop.running(), ...runs.running()],
        waiting: loop.waitingCount,
        freeCells: loop.freeCells,
        cellCount: loop.cellCount,
        tokensPerSecond: rates.completion.perSecond(clock.monotonicMs()),
        promptTokensPerSecond: rates.prompt.perSecond(clock.monotonicMs()),
        speculation: options.speculation === null ? null : speculationCounts(context.counters()),
      }),
    (load) => hub.publish(load),
  );
  const queue = new EmbeddingQueue(
    ({ pooling, contextLength }) =>
      native.createEmbedder({ pooling, contextLength: Math.min(contextLength, size.contextLength), threads }),
    {
      maxPending: options.max_pending,
      inputsPerCall: options.device === "cpu" ? INPUTS_PER_CALL.cpu : INPUTS_PER_CALL.gpu,
    },
  );
  const model: EngineModel = {
    name: options.model,
    native,
    chat: new ChatPrompter(native, () => randomBase62(12, randomBytes)),
    contextLength: size.contextLength,
    get saes() {
      return saes.attached;
    },
    profiles: options.profiles,
    allowsGrammar: options.allow_grammar,
    allowsEmbeddings: options.enable_embeddings,
    randomSeed: () => randomInt(0, MAX_SEED + 1),
  };
  const ranker = new FeatureRanker({
    native,
    openReader: (contextTokens) =>
      ResidualReader.open(native, {
        threads,
        flashAttention: options.flash_attention,
        kvType: options.kv_cache_type,
        contextTokens,
      }),
    contextLength: size.contextLength,
    hold: (held) => saes.hold(held),
  });
  const watching = new Watching(
    {
      options: options.monitoring,
      saes: () => saes.attached,
      layerCount: native.info.layerCount,
      tokenBytes: (token) => native.tokenBytes(token, true),
      clock,
    },
    options.watch_lists,
  );
  const server = new EngineServer({
    model,
    ranker,
    generation: {
      loop,
      watching,
      modelName: options.model,
      tokenBytes: (token) => native.tokenBytes(token, true),
      nowMs: () => clock.nowMs(),
      randomBytes,
    },
    embedding: { queue, runs, modelName: options.model },
    saes,
    management,
    watch: { watching, clock },
    hub,
    logger,
    maxBodyBytes: MAX_BODY_BYTES,
  });
  reporter.start();
  const { contextLength, cellCount, layout } = size;
  logger.info("engine ready", { model: options.model, context: contextLength, cells: cellCount, layout, threads });
  return new RunningEngine({
    server,
    loop,
    runs,
    queue,
    ranker,
    context,
    saes,
    native,
    draft,
    reporter,
    clock,
    logger,
  });
}

function speculationCounts({ draftedTokens, acceptedTokens, draftModelTokens }: ContextCounters): SpeculationCounts {
  return { drafted: draftedTokens, accepted: acceptedTokens, draft_model: draftModelTokens };
}

interface SaesTold {
  readonly loaded: readonly LoadedSae[];
  readonly refused: readonly RefusedSae[];
}

function fidelityCheck(options: EngineOptions, model: NativeModel, threads: number, logger: Logger): FidelityCheck {
  return new FidelityCheck({
    model,
    modelPath: options.model_path,
    context: { threads, flashAttention: options.flash_attention, kvType: options.kv_cache_type },
    minExplainedVariance: options.min_explained_variance,
    store: new FidelityStore(options.fidelity_folder),
    logger,
  });
}

function readyEvent(options: EngineOptions, size: ContextSize, { loaded, refused }: SaesTold): EngineReady {
  return {
    type: "ready",
    model: options.model,
    engine: "native",
    slots: options.slots,
    context_length: size.contextLength,
    max_output: null,
    capabilities: [
      "chat",
      "completions",
      ...(options.enable_embeddings ? ["embeddings"] : []),
      "logprobs",
      "response_format",
      "tools",
      ...(loaded.length > 0 ? ["steering", "sensing"] : []),
    ],
    saes: loaded.map(attachedSaeOf),
    profiles: usableProfiles(options.profiles, loaded),
    ...(refused.length > 0 ? { refused_saes: [...refused] } : {}),
  };
}
