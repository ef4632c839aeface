import { createAdminApp, createAgentApp, createApp, createMetricsApp } from "../app.ts";
import { isLoopbackUrl, type EdgeConfig } from "../config.ts";
import type { EdgeDeps } from "../deps.ts";
import type { Front } from "./inference-front.ts";
import { OperatorError } from "./operator-error.ts";
import { addressOf, listen, type FetchApp, type Listener } from "./server.ts";

export interface ListenerUrls {
  /** Origin and `/v1`: what clients are given. */
  readonly baseUrl: string;
  readonly adminUrl: string | null;
  readonly metricsUrl: string | null;
  /** Where hosts report; null when no listener takes reports. */
  readonly agentUrl: string | null;
}

export interface OpenListeners {
  readonly urls: ListenerUrls;
  /** Breaks whatever connection is still open. */
  breakAll(): void;
  /** Takes no new connection and waits for the open ones, which a client may keep: those are broken after a while. */
  stop(): Promise<void>;
}

const STOP_GRACE_MS = 1_000;

/** Opens the listeners of the configuration, the public one, with `front` before it, last. Rejects with OperatorError and leaves none open. */
export async function openListeners(config: EdgeConfig, deps: EdgeDeps, front: Front): Promise<OpenListeners> {
  checkAgentAddress(config);
  const open: Listener[] = [];
  const opened = async (app: FetchApp, address: string, name: string, taking?: Front): Promise<Listener | null> => {
    if (address === "") return null;
    const listener = await listen(app, address, name, taking);
    open.push(listener);
    return listener;
  };
  const breakAll = (): void => {
    for (const listener of open) listener.breakConnections();
  };
  try {
    const takesReports = config.agent_listen === "";
    const agent = await opened(createAgentApp(deps), config.agent_listen, "agent_listen");
    const admin = await opened(createAdminApp(deps, { takesReports }), config.admin_listen, "admin_listen");
    const metrics = await opened(createMetricsApp(deps), config.metrics_listen, "metrics_listen");
    const api = await opened(createApp(deps), config.listen, "listen", front);
    if (api === null) throw new OperatorError("`listen` must name an address.");
    const metricsOrigin = (metrics ?? admin)?.url ?? null;
    return {
      urls: {
        baseUrl: `${api.url}/v1`,
        adminUrl: admin?.url ?? null,
        metricsUrl: metricsOrigin === null ? null : `${metricsOrigin}/metrics`,
        agentUrl: (agent ?? (takesReports ? admin : null))?.url ?? null,
      },
      breakAll,
      async stop() {
        const stopped = Promise.all(open.map((listener) => listener.stop()));
        const timer = setTimeout(breakAll, STOP_GRACE_MS);
        await stopped;
        clearTimeout(timer);
      },
    };
  } catch (thrown) {
    breakAll();
    await Promise.all(open.map((listener) => listener.stop()));
    throw thrown;
  }
}

/** Enrolment tokens must not cross a network in the clear. */
function checkAgentAddress(config: EdgeConfig): void {
  const [key, address] =
    config.agent_listen === "" ? ["admin_listen", config.admin_listen] : ["agent_listen", config.agent_listen];
  if (address === "" || config.insecure) return;
  const { host } = addressOf(address);
  const literal = host === undefined ? "0.0.0.0" : host.includes(":") ? `[${host}]` : host;
  if (isLoopbackUrl(`http://${literal}`)) return;
  throw new OperatorError(
    `${key}: ${address} is not loopback, and hosts would send their tokens in the clear; set 'insecure: true' for a network you trust.`,
  );
}
