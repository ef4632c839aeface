import { InProcessCoordinator } from "../../edge/admission/coordinator.ts";
import { DEFAULT_ADMISSION_SETTINGS, type AdmissionSettings } from "../../edge/admission/settings.ts";
import type { DispatchMemory } from "../../edge/dispatch/dispatch-memory.ts";
import { Dispatcher } from "../../edge/dispatch/dispatcher.ts";
import { DEFAULT_DISPATCH_SETTINGS, type DispatcherDeps, type DispatchSettings } from "../../edge/dispatch/settings.ts";
import type { ReplicaDigest, ReplicaTarget } from "../../edge/ports/coordinator.ts";
import type { Upstream } from "../../edge/ports/upstream.ts";
import type { Clock } from "../../shared/time/clock.ts";
import type { Fleet, ServedModel } from "../../edge/ports/fleet.ts";
import {
  inferenceRequest,
  readableSigner,
  RecordingLedger,
  RecordingLimits,
  RecordingMetrics,
  RecordingWriter,
  silentLogger,
} from "./dispatch-fakes.ts";
import { ManualClock } from "./manual-clock.ts";
import { FakeUpstream, type FakeExchange } from "./scripted-exchange.ts";
import { waitFor } from "./scripted-upstream.ts";

export function replica(
  key: string,
  more: Partial<Omit<ReplicaDigest, "target">> & { readonly target?: Partial<ReplicaTarget> } = {},
): ReplicaDigest {
  const [backend = "", replicaId = ""] = key.split("/");
  const { target, ...rest } = more;
  return {
    ready: true,
    draining: false,
    slots: 4,
    reportedInFlight: null,
    reportedInFlightOfThisEdge: null,
    waiting: 0,
    reportedAtMs: null,
    freeKvCells: 0,
    totalKvCells: 0,
    contextLength: 4_096,
    capabilities: [],
    saes: [],
    weight: 1,
    priority: 0,
    ...rest,
    target: { key, kind: "host", backend, replicaId, url: `http://${backend}.test`, model: "m", epoch: 1, ...target },
  };
}

export interface DispatchBenchOptions {
  readonly clock: Clock;
  readonly upstream: Upstream;
  readonly replicas: readonly ReplicaDigest[];
  readonly settings?: Partial<DispatchSettings>;
  readonly admission?: Partial<AdmissionSettings>;
  /** Told of hosts that could not be connected to; by default nobody takes one out. */
  readonly fleet?: Partial<Pick<Fleet, "unreachable" | "resolve">>;
  /** What the dispatcher is to share with others. */
  readonly memory?: DispatchMemory;
  /** Replicas of other models, by pool. */
  readonly otherPools?: Readonly<Record<string, readonly ReplicaDigest[]>>;
}

/** A Dispatcher with the real Coordinator, and recorders around it. */
export async function dispatchBench(options: DispatchBenchOptions) {
  const { clock, upstream, replicas } = options;
  const coordinator = new InProcessCoordinator({
    clock,
    settings: { ...DEFAULT_ADMISSION_SETTINGS, ...options.admission },
  });
  await coordinator.update({ pool: "m", replicas });
  for (const [pool, others] of Object.entries(options.otherPools ?? {}))
    await coordinator.update({ pool, replicas: others });
  const limits = new RecordingLimits();
  const ledger = new RecordingLedger();
  const metrics = new RecordingMetrics();
  const deps: DispatcherDeps = {
    clock,
    logger: silentLogger,
    coordinator,
    fleet: {
      unreachable: () => Promise.resolve(false),
      resolve: () => Promise.resolve(null),
      ...options.fleet,
    },
    limits,
    ledger,
    signer: readableSigner,
    upstream,
    metrics,
    settings: {
      ...DEFAULT_DISPATCH_SETTINGS,
      priceOf: () => ({ price: { promptPer1k: 2, cachedPer1k: 1, completionPer1k: 6 }, priceVersion: 3 }),
      endpointKey: (id) => (id === "keyed" ? "operator-key" : null),
      ...options.settings,
    },
  };
  const dispatcher = new Dispatcher(deps, options.memory);
  const inFlight = async (): Promise<number> => {
    const stats = await coordinator.stats();
    return stats.reduce((sum, pool) => sum + pool.inFlight, 0);
  };
  return { coordinator, limits, ledger, metrics, dispatcher, inFlight };
}

/** The same on a manual clock with machines that the test plays. */
export async function manualBench(options: Partial<Omit<DispatchBenchOptions, "clock" | "upstream">> = {}) {
  const clock = new ManualClock();
  const upstream = new FakeUpstream();
  const made = await dispatchBench({ clock, upstream, replicas: [replica("gpu/r1")], ...options });
  const ask = (
    body: Record<string, unknown> = {},
    more: { requestId?: string; model?: ServedModel; progress?: boolean } = {},
  ) => {
    const writer = new RecordingWriter();
    const done = made.dispatcher.run(inferenceRequest(body, { receivedAtMs: clock.nowMs(), ...more }), writer);
    return { writer, done };
  };
  const exchange = (place: number): Promise<FakeExchange> => waitFor(() => upstream.exchanges[place]);
  return { ...made, clock, upstream, ask, exchange };
}

export const errorOf = (writer: RecordingWriter): { code: string; message: string; param: string | null } => {
  const body: { error: { code: string; message: string; param: string | null } } = JSON.parse(writer.text);
  return body.error;
};
