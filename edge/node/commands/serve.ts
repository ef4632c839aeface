import type { Command } from "commander";
import { loadConfig, withConfigOptions, type ConfigOptions } from "../load-config.ts";
import { startEdge, type RunningEdge } from "../start-edge.ts";

interface ServeOptions extends ConfigOptions {
  readonly json?: boolean;
}

/** `steerage serve`: the edge until a signal. */
export function registerServe(program: Command): void {
  withConfigOptions(program.command("serve"))
    .description("run the edge: the public API, the hosts' and operators' listeners")
    .option("--json", "one JSON line on stdout when ready")
    .action(async (options: ServeOptions) => {
      const loaded = await loadConfig(options);
      const edge = await startEdge(loaded);
      announce(edge, options.json ?? false);
      process.exitCode = await untilSignalled(edge);
    });
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

/**
 * The first SIGTERM or SIGINT lets running requests finish up to `drain_timeout`; a second one ends at once with the
 * journal written. Both exit 0.
 */
function untilSignalled(edge: RunningEdge): Promise<number> {
  return new Promise((resolve) => {
    let signals = 0;
    const onSignal = (): void => {
      signals++;
      if (signals === 1) {
        edge.close().then(
          () => resolve(0),
          (thrown: unknown) => {
            edge.logger.error("the edge did not stop cleanly", {}, thrown);
            resolve(1);
          },
        );
      } else if (signals === 2) {
        edge.abort();
      }
    };
    process.on("SIGTERM", onSignal);
    process.on("SIGINT", onSignal);
    process.on("uncaughtException", (thrown) => endBy("a fault that nobody caught; ending", thrown, edge));
    process.on("unhandledRejection", (thrown) => endBy("a promise that nobody watched failed; ending", thrown, edge));
  });
}

/** The state of a process in which this happened cannot be trusted: the journal is written, and it ends. */
function endBy(fault: string, thrown: unknown, edge: RunningEdge): void {
  edge.logger.error(fault, {}, thrown);
  edge.abort();
  edge.close().then(
    () => process.exit(1),
    () => process.exit(1),
  );
}
