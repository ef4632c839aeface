import { html, raw } from "hono/html";
import type { ServedModel } from "../../ports/fleet.ts";
import { COLOURS } from "./colours.ts";

export interface LandingFacts {
  /** As the visitor reached us, ending with /v1. */
  readonly baseUrl: string;
  readonly models: readonly ServedModel[];
}

const STYLE = `${COLOURS}
  main { max-width: 46rem; margin: 0 auto; padding: 2.5rem 1.25rem 4rem; }
  h1 { margin: 0 0 .25rem; font-size: 1.9rem; letter-spacing: -.01em; }
  h2 { margin: 2.25rem 0 .75rem; font-size: 1.1rem; }
  p { margin: .5rem 0; }
  .soft { color: var(--soft); }
  pre { margin: .75rem 0; padding: 1rem; overflow-x: auto; background: var(--card); border: 1px solid var(--line); border-radius: .5rem; font: .85rem/1.5 ui-monospace, monospace; }
  code { font: .92em ui-monospace, monospace; }
  ul { list-style: none; margin: 0; padding: 0; }
  li { padding: .8rem 1rem; background: var(--card); border: 1px solid var(--line); border-radius: .5rem; margin-bottom: .6rem; overflow-wrap: anywhere; }
  li strong { color: var(--accent); }
  .state { float: right; font-size: .85rem; color: var(--soft); }
`;

/** A plain page without scripts: readable in light and dark and on a phone. */
export function landingPage({ baseUrl, models }: LandingFacts) {
  const first = models[0];
  return html`<!doctype html>
    <html lang="en">
      <head>
        <meta charset="utf-8" />
        <meta name="viewport" content="width=device-width, initial-scale=1" />
        <title>Steerage</title>
        <style>
          ${raw(STYLE)}
        </style>
      </head>
      <body>
        <main>
          <h1>Steerage</h1>
          <p class="soft">
            An OpenAI-compatible gateway with a steering wheel: ask as usual, and steer or watch a model's features
            where an SAE is loaded.
          </p>
          <h2>What is served</h2>
          ${
            models.length === 0
              ? html`<p>No model is served at the moment.</p>`
              : html`<ul>
                  ${models.map(modelItem)}
                </ul>`
          }
          <h2>How to ask</h2>
          <p>
            Base URL: <code>${baseUrl}</code>. Every OpenAI client works; the key comes from the operator of this
            server.
          </p>
          <pre>${curlText(baseUrl, first?.id ?? "MODEL", "")}</pre>
          ${
            first?.saes[0] === undefined
              ? ""
              : html`<p>
                    Steered along one feature of an SAE; the answer's <code>X-Steerage-Steering</code> header says what
                    was done:
                  </p>
                  <pre>${curlText(baseUrl, first.id, steeringText(first.saes[0].id))}</pre>`
          }
          <p class="soft">
            Routes: <code>/v1/models</code>, <code>/v1/chat/completions</code>, <code>/v1/completions</code>,
            <code>/v1/embeddings</code>, <code>/v1/saes</code> (features by words, by likeness, by rank),
            <code>/v1/key</code> (what your key has left). Health: <code>/health</code>, <code>/ready</code>.
          </p>
        </main>
      </body>
    </html>`;
}

function modelItem(model: ServedModel) {
  const state = model.readyReplicas > 0 ? "ready" : "not ready";
  const facts = [
    model.contextLength === null ? null : `${model.contextLength} tokens of context`,
    model.saes.length === 0 ? null : `SAEs: ${[...new Set(model.saes.map(({ id }) => id))].join(", ")}`,
  ].filter((fact) => fact !== null);
  return html`<li>
    <span class="state">${state}</span><strong>${model.id}</strong>${
      model.description === null ? "" : html`<br />${model.description}`
    }${facts.length === 0 ? "" : html`<br /><span class="soft">${facts.join(" · ")}</span>`}
  </li>`;
}

const steeringText = (saeId: string): string =>
  `,\n       "steering": {"sae_id": ${JSON.stringify(saeId)},\n         "features": [{"index": 0, "strength": 10}]}`;

function curlText(baseUrl: string, model: string, more: string): string {
  const showHeaders = more === "" ? "" : "-i ";
  return `curl ${showHeaders}${baseUrl}/chat/completions \\
  -H "Authorization: Bearer $STEERAGE_KEY" \\
  -H "Content-Type: application/json" \\
  -d '{"model": ${JSON.stringify(model)},
       "messages": [{"role": "user", "content": "Tell me a story."}]${more}}'`;
}
