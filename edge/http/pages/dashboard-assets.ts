import { COLOURS } from "./colours.ts";

export const DASHBOARD_STYLE = `${COLOURS}
  header, main { max-width: 64rem; margin: 0 auto; padding: 0 1rem; }
  header { display: flex; flex-wrap: wrap; align-items: baseline; gap: .25rem 1rem; padding-top: 1.5rem; }
  header p { margin: 0; flex: 1; }
  main { padding-bottom: 3rem; }
  h1 { margin: 0; font-size: 1.6rem; overflow-wrap: anywhere; }
  h2 { margin: 2rem 0 .5rem; font-size: 1.15rem; }
  h3 { margin: 0; font-size: 1rem; color: var(--accent); overflow-wrap: anywhere; }
  p { margin: .35rem 0; }
  .soft { color: var(--soft); font-size: .9rem; overflow-wrap: anywhere; }
  button { font: inherit; color: var(--ink); background: var(--card); border: 1px solid var(--line); border-radius: .4rem; padding: .2rem .8rem; }
  section, .decisions > li { background: var(--card); border: 1px solid var(--line); border-radius: .5rem; margin-bottom: .6rem; }
  section { padding: .8rem 1rem; }
  meter { width: 8rem; vertical-align: middle; }
  .wide { overflow-x: auto; display: flex; flex-wrap: wrap; align-items: flex-start; gap: 0 2.5rem; }
  .wide > table { display: block; max-width: 100%; overflow-x: auto; }
  table { border-collapse: collapse; margin: .5rem 0; font-size: .88rem; font-variant-numeric: tabular-nums; }
  caption { text-align: left; color: var(--soft); }
  th, td { text-align: left; padding: .15rem .9rem .15rem 0; border-bottom: 1px solid var(--line); font-weight: normal; }
  th[scope=row], td { white-space: nowrap; }
  th[scope=col] { color: var(--soft); white-space: nowrap; }
  .chosen { color: var(--accent); }
  .chosen th { font-weight: 600; }
  .decisions { list-style: none; margin: 0; padding: 0; }
  details { padding: .5rem 1rem; }
  summary { display: flex; flex-wrap: wrap; gap: 0 .9rem; cursor: pointer; overflow-wrap: anywhere; }
  summary strong { color: var(--bad); }
  summary strong.completed { color: var(--accent); }
  summary strong.cancelled { color: var(--soft); }
  summary .figures { margin-left: auto; font-variant-numeric: tabular-nums; }
`;

/** Shows the page anew every two seconds, with what the reader unfolded left as it is. */
export const DASHBOARD_SCRIPT = `
const EVERY_MS = 2000;
const button = document.getElementById("pause");
let paused = false;
button.hidden = false;
button.addEventListener("click", () => {
  paused = !paused;
  button.textContent = paused ? "Go on" : "Pause";
});
async function renew() {
  if (paused || document.hidden) return;
  const answer = await fetch(location.pathname, { cache: "no-store" });
  if (!answer.ok || paused) return;
  const page = new DOMParser().parseFromString(await answer.text(), "text/html");
  const fresh = page.getElementById("live");
  const shown = document.getElementById("live");
  if (fresh === null || shown === null) return;
  for (const { id } of shown.querySelectorAll("details[open]")) fresh.querySelector("#" + CSS.escape(id))?.setAttribute("open", "");
  const focused = document.activeElement?.closest("details")?.id;
  const scrolled = [...shown.querySelectorAll("table")].map((one) => one.scrollLeft);
  shown.replaceWith(document.adoptNode(fresh));
  [...document.querySelectorAll("table")].forEach((one, place) => { one.scrollLeft = scrolled[place] ?? 0; });
  if (focused) document.querySelector("#" + CSS.escape(focused) + " summary")?.focus({ preventScroll: true });
}
async function turn() {
  try { await renew(); } catch { /* The edge is away: what is shown stays until it is back. */ }
  setTimeout(turn, EVERY_MS);
}
setTimeout(turn, EVERY_MS);
`;
