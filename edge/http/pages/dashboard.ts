import { html } from "hono/html";
import type { RequestDecision } from "../../dispatch/account/decision-log.ts";
import type { PoolStats, ReplicaStats } from "../../ports/coordinator.ts";
import type { HostState } from "../../ports/fleet.ts";
import { decisionItem } from "./dashboard-decision.ts";
import { bytes, duration, percent } from "./figures.ts";

export interface DashboardFacts {
  /** The edge's name. */
  readonly edge: string;
  readonly nowMs: number;
  /** `draining`, or whether the store answers. */
  readonly state: "ok" | "away" | "draining";
  readonly pools: readonly PoolStats[];
  readonly hosts: readonly HostState[];
  /** The newest first. */
  readonly decisions: readonly RequestDecision[];
}

const STATES: Readonly<Record<DashboardFacts["state"], string>> = {
  ok: "in service",
  away: "degraded: the database is away, keys seen lately go on working",
  draining: "draining: takes nothing new",
};

/** The operator's view of what is decided and why. It shows ids, names and numbers, and no text of any request. */
export function dashboardPage(facts: DashboardFacts) {
  const { edge, state, pools, hosts, decisions, nowMs } = facts;
  return html`<!doctype html>
    <html lang="en">
      <head>
        <meta charset="utf-8" />
        <meta name="viewport" content="width=device-width, initial-scale=1" />
        <title>${edge} · decisions</title>
        <link rel="stylesheet" href="/dashboard.css" />
        <script src="/dashboard.js" defer></script>
        <noscript><meta http-equiv="refresh" content="5" /></noscript>
      </head>
      <body>
        <header>
          <h1>${edge}</h1>
          <p class="soft">${STATES[state]}</p>
          <button type="button" id="pause" hidden>Pause</button>
        </header>
        <main id="live">
          <p class="soft">As of <time>${new Date(nowMs).toISOString().slice(11, 19)}</time> UTC.</p>
          <h2>Pools</h2>
          ${pools.length === 0 ? html`<p>No model is served at the moment.</p>` : pools.map(poolSection)}
          <h2>Hosts</h2>
          ${hosts.length === 0 ? html`<p>No host reports to this edge.</p>` : hostTable(hosts, nowMs)}
          <h2>Latest decisions</h2>
          ${
            decisions.length === 0
              ? html`<p>Nothing was asked in the last hour.</p>`
              : html`<ol class="decisions">
                  ${decisions.map((decision) => decisionItem(decision))}
                </ol>`
          }
        </main>
      </body>
    </html>`;
}

function poolSection(stats: PoolStats) {
  const { pool, saturation, inFlight, replicas = [] } = stats;
  return html`<section>
    <h3>${pool}</h3>
    <p>
      <meter min="0" max="1" low="0.7" high="0.9" optimum="0" value="${Math.min(1, saturation).toFixed(3)}">
        ${percent(saturation)}
      </meter>
      ${percent(saturation)} saturated, ${inFlight} in flight
    </p>
    <div class="wide">
      <table>
        <caption>
          Queues
        </caption>
        <tr>
          <th scope="col">band</th>
          <th scope="col">waiting</th>
          <th scope="col">oldest</th>
          <th scope="col">bodies</th>
        </tr>
        ${Object.entries(stats.queueDepthByBand).map(
          ([band, depth]) =>
            html`<tr>
              <th scope="row">${band}</th>
              <td>${depth}</td>
              <td>${depth === 0 ? "–" : duration(stats.oldestWaitMsByBand[band] ?? 0)}</td>
              <td>${bytes(stats.queueBytesByBand?.[band] ?? 0)}</td>
            </tr>`,
        )}
      </table>
      <table>
        <caption>
          Replicas
        </caption>
        <tr>
          <th scope="col">replica</th>
          <th scope="col">state</th>
          <th scope="col">slots</th>
          <th scope="col">ours</th>
          <th scope="col">others</th>
          <th scope="col">waiting</th>
          <th scope="col">KV</th>
          <th scope="col">report</th>
        </tr>
        ${replicas.map(
          (one) =>
            html`<tr>
              <th scope="row">${one.replica}</th>
              <td>${stateOf(one, stats)}</td>
              <td>${one.slots}</td>
              <td>${one.inFlight}</td>
              <td>${one.othersInFlight ?? "–"}</td>
              <td>${one.waiting}</td>
              <td>${one.kvUse === null ? "–" : percent(one.kvUse)}</td>
              <td>${one.reportAgeMs === null ? "none" : duration(one.reportAgeMs)}</td>
            </tr>`,
        )}
      </table>
    </div>
  </section>`;
}

function stateOf({ replica, usable }: ReplicaStats, { breakers }: PoolStats): string {
  const breaker = breakers?.[replica];
  if (breaker === "open") return "out after failures";
  if (breaker === "half_open") return "to be tried again";
  return usable ? "ready" : "away";
}

function hostTable(hosts: readonly HostState[], nowMs: number) {
  return html`<div class="wide">
    <table>
      <tr>
        <th scope="col">host</th>
        <th scope="col">last report</th>
        <th scope="col">replicas</th>
      </tr>
      ${hosts.map(
        ({ host, draining, lastReportAtMs, replicas }) =>
          html`<tr>
            <th scope="row">${host}${draining ? " (draining)" : ""}</th>
            <td>${duration(Math.max(0, nowMs - lastReportAtMs))} ago</td>
            <td>
              ${replicas
                .map(({ model, state, reason }) => `${model}: ${state}${reason === null ? "" : ` (${reason})`}`)
                .join(", ")}
            </td>
          </tr>`,
      )}
    </table>
  </div>`;
}
