import { html } from "hono/html";
import type { DecidedAttempt, RequestDecision } from "../../dispatch/account/decision-log.ts";
import type { GrantReason, Pressure } from "../../ports/coordinator.ts";
import { duration, percent, seconds } from "./figures.ts";

const BY: Readonly<Record<GrantReason["by"], string>> = {
  prefix: "because it knows the prompt",
  session: "because it has the session",
  score: "by score",
};
const ENDS: Readonly<Record<DecidedAttempt["end"], string>> = {
  answered: "answered",
  failed: "failed",
  cancelled: "cancelled",
  lost_race: "another machine was faster to begin",
};

/** One request: in a line what became of it, and unfolded why it went where it went. */
export function decisionItem(decision: RequestDecision) {
  const {
    requestId,
    atMs,
    project,
    askedModel,
    model,
    band,
    outcome,
    refusal,
    queueMs,
    totalMs,
    attempts,
    refusedUnder,
  } = decision;
  const last = attempts.at(-1);
  return html`<li>
    <details id="${requestId}">
      <summary>
        <time>${new Date(atMs).toISOString().slice(11, 19)}</time>
        <strong class="${outcome}">${refusal ?? outcome}</strong>
        <span>${askedModel === model ? model : `${askedModel} → ${model}`}</span>
        <span class="soft">${last === undefined ? "no machine" : last.replica}</span>
        <span class="soft">${band}, ${project}</span>
        <span class="figures">${queueMs === null ? "" : `queued ${duration(queueMs)}, `}${duration(totalMs)}</span>
      </summary>
      <p class="soft">
        ${requestId}${decision.ttftMs === null ? "" : `, first token after ${duration(decision.ttftMs)}`}
      </p>
      ${refusedUnder === null ? "" : pressurePart(refusedUnder)}
      ${attempts.length === 0 ? html`<p>It never reached a machine.</p>` : attempts.map(attemptPart)}
    </details>
  </li>`;
}

function pressurePart({ band, saturation, ceiling, waiting }: Pressure) {
  return html`<p class="soft">
    Refused with the pool ${percent(saturation)} saturated, the ceiling of band ${band} at ${percent(ceiling)}, and
    ${waiting} waiting there.
  </p>`;
}

function attemptPart({ attempt, model, replica, end, failure, why }: DecidedAttempt) {
  return html`<p>
      Attempt ${attempt}, ${model} on <strong>${replica}</strong>${why === null ? "" : ` ${BY[why.by]}`}:
      ${failure === null ? ENDS[end] : `failed with ${failure}`}.
    </p>
    ${
      why === null
        ? ""
        : html`<p class="soft">
              Band ${why.band}, the pool ${percent(why.saturation)} saturated under a ceiling of
              ${percent(why.ceiling)}.
            </p>
            ${candidateTable(why, replica)}`
    }`;
}

function candidateTable({ candidates, promptBytes }: GrantReason, chosen: string) {
  return html`<div class="wide">
    <table>
      <tr>
        <th scope="col">with room</th>
        <th scope="col">seconds</th>
        <th scope="col">load</th>
        <th scope="col">KV</th>
        <th scope="col">promise missed</th>
        <th scope="col">prompt known</th>
      </tr>
      ${candidates.map(
        ({ replica, seconds: sum, terms, matchedBytes }) =>
          html`<tr class="${replica === chosen ? "chosen" : ""}">
            <th scope="row">${replica}</th>
            <td>${seconds(sum)}</td>
            <td>${seconds(terms.load)}</td>
            <td>${seconds(terms.kv)}</td>
            <td>${seconds(terms.slo)}</td>
            <td>${promptBytes === 0 ? "–" : percent(matchedBytes / promptBytes)}</td>
          </tr>`,
      )}
    </table>
  </div>`;
}
