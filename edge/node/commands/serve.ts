import type { Command } from "commander";
import { tuneCollector } from "../collector.ts";
import { loadConfig, withConfigOptions, type ConfigOptions, type LoadedConfig } from "../load-config.ts";
import { startEdge, type RunningEdge } from "../start-edge.ts";

interface ServeOptions extends ConfigOptions {
  readonly json?: boolean;
}

/** `steerage serve`: the edge until a signal. */
export function registerServe(program: Command): void {
  withConfigOptions(program.command("serve"))
    .description(
      "run the edge: the public API, the hosts' and operators' listeners; SIGHUP reads the configuration again and applies it",
    )
    .option("--json", "one JSON line on stdout when ready")
    .action(async (options: ServeOptions) => {
      tuneCollector();
      const loaded = await loadConfig(options);
      if (options.config === undefined) tellDefaults(loaded);
      const signals = new StopSignals();
      const reloads = new ReloadSignals(() => loadConfig(options));
      const edge = await startEdge(loaded);
      if (!signals.came) announce(edge, options.json ?? false);
      reloads.serve(edge);
      // Not left to Node: while it takes itself down signals have their default effect, and one that comes then would
      // make an orderly end look like a crash.
      process.exit(await untilSignalled(edge, signals));
    });
}

/** Without a file nobody knows by which configuration this runs. */
function tellDefaults({ config, dataDirectory }: LoadedConfig): void {
  process.stderr.write(
    `steerage: no --config was given; defaults and the environment say: listen ${config.listen}, ` +
      `admin_listen ${config.admin_listen}, data ${dataDirectory}\n`,
  );
}

function announce(edge: RunningEdge, json: boolean): void {
  const { baseUrl, adminUrl, metricsUrl, agentUrl } = edge;
  if (json) {
    process.stdout.write(
      `${JSON.stringify({ ready: true, base_url: baseUrl, admin_url: adminUrl, metrics_url: metricsUrl, agent_url: agentUrl, pid: process.pid })}\n`,
    );
    return;
  }
  const parts = [`base URL ${baseUrl}`, ...(adminUrl === null ? [] : [`admin ${adminUrl}`])];
  if (metricsUrl !== null) parts.push(`metrics ${metricsUrl}`);
  process.stdout.write(`The edge is ready: ${parts.join(", ")}\n`);
}

/** SIGTERM and SIGINT from its making on, also before there is something to stop. */
class StopSignals {
  #count = 0;
  #onSignal: () => void = () => undefined;

  constructor() {
    const onSignal = (): void => {
      this.#count++;
      this.#onSignal();
    };
    process.on("SIGTERM", onSignal);
    process.on("SIGINT", onSignal);
  }

  get came(): boolean {
    return this.#count > 0;
  }

  /** Tells of the first and of the second signal, those included that have come. */
  listen(onFirst: () => void, onSecond: () => void): void {
    let told = 0;
    this.#onSignal = () => {
      if (told < 1 && this.#count >= 1) {
        told = 1;
        onFirst();
      }
      if (told < 2 && this.#count >= 2) {
        told = 2;
        onSecond();
      }
    };
    this.#onSignal();
  }
}

/** SIGHUP from its making on; one that comes before there is an edge is obeyed as soon as there is. */
class ReloadSignals {
  readonly #load: () => Promise<LoadedConfig>;
  #edge: RunningEdge | null = null;
  #came = false;

  constructor(load: () => Promise<LoadedConfig>) {
    this.#load = load;
    process.on("SIGHUP", () => {
      this.#came = true;
      this.#obey();
    });
  }

  serve(edge: RunningEdge): void {
    this.#edge = edge;
    this.#obey();
  }

  #obey(): void {
    if (!this.#came || this.#edge === null) return;
    this.#came = false;
    void this.#edge.reload(this.#load);
  }
}

/** After the second signal or a fault, for a database that does not answer; its rows are in the journal. */
const ABORT_LIMIT_MS = 5_000;

/**
 * The first SIGTERM or SIGINT lets running requests finish up to `drain_timeout`; a second one ends at once with the
 * journal written. Both exit 0.
 */
function untilSignalled(edge: RunningEdge, signals: StopSignals): Promise<number> {
  process.on("uncaughtException", (thrown) => endBy("a fault that nobody caught; ending", thrown, edge));
  process.on("unhandledRejection", (thrown) => endBy("a promise that nobody watched failed; ending", thrown, edge));
  return new Promise((resolve) => {
    signals.listen(
      () => {
        edge.close().then(
          () => resolve(0),
          (thrown: unknown) => {
            edge.logger.error("the edge did not stop cleanly", {}, thrown);
            resolve(1);
          },
        );
      },
      () => {
        edge.abort();
        setTimeout(() => {
          edge.logger.warn("something does not close; ending without it");
          resolve(0);
        }, ABORT_LIMIT_MS);
      },
    );
  });
}

/** The state of a process in which this happened cannot be trusted: the journal is written, and it ends. */
function endBy(fault: string, thrown: unknown, edge: RunningEdge): void {
  edge.logger.error(fault, {}, thrown);
  edge.abort();
  setTimeout(exitAfterFault, ABORT_LIMIT_MS);
  edge.close().then(exitAfterFault, exitAfterFault);
}

function exitAfterFault(): void {
  process.exit(1);
}
