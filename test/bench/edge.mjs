// The edge with everything on (keys, limits, admission, routing, ledger) beside the mock alone, two plain proxies and
// another gateway, all on loopback. Rounds alternate their order, medians are reported with the raw values: others may
// use this machine too, so only ratios of one run mean anything.
import { mkdtempSync, rmSync } from "node:fs";
import { availableParallelism, loadavg, tmpdir } from "node:os";
import path from "node:path";
import { parseArgs } from "node:util";
import { startGateway, startMock, TARGETS } from "./edge/gateways.mjs";
import { abortMs, firstPieceMs, manyStreams, median, percentile, requestsPerSecond, warmUp } from "./edge/measures.mjs";
import { Children, memoryOf, processorUs } from "./edge/processes.mjs";

const HELP = `usage: npm run bench:edge -- [options]

Measures requests per second, added time to first byte of streams, time from a client's leaving to the backend's, memory,
and 2,000 concurrent streams, of the built edge ('npm run build') and of what stands beside it.

  --rounds N      alternating rounds, whose medians count  (5)
  --quick         short rounds and fewer of them: a look, not a measurement
  --targets LIST  of ${TARGETS.join(",")}; the mock is always there
  --check         exit code 1 when a bar is missed
  --json          one JSON line on stdout
  --help          this text

nginx and haproxy are Debian packages (nginx-light, haproxy); Portkey's gateway is installed into build/bench/portkey.`;

const BARS = [
  ["requests per second, to nginx", "least", 0.35, (of) => ratio(of.edge?.rps16, of.nginx?.rps16)],
  ["requests per second, to Portkey", "least", 4, (of) => ratio(of.edge?.rps16, of.portkey?.rps16)],
  ["added time to first byte p50, ms", "most", 1.5, (of) => of.edge?.added_ttfb_p50_ms],
  ["added time to first byte p99, ms", "most", 15, (of) => of.edge?.added_ttfb_p99_ms],
  ["abort reaches the backend p50, ms", "most", 10, (of) => of.edge?.abort_p50_ms],
  ["memory after load, MiB", "most", 150, (of) => of.edge?.memory_mib],
  ["lost events of concurrent streams", "most", 0, (of) => of.edge?.streams?.lost],
];

const options = readOptions();
if (options !== null) {
  await main(options).catch((error) => {
    console.error(`bench:edge: ${error.message}`);
    process.exitCode = 1;
  });
}

function readOptions() {
  try {
    const { values } = parseArgs({
      options: {
        rounds: { type: "string" },
        targets: { type: "string", default: TARGETS.join(",") },
        quick: { type: "boolean", default: false },
        check: { type: "boolean", default: false },
        json: { type: "boolean", default: false },
        help: { type: "boolean", default: false },
      },
    });
    if (values.help) {
      console.log(HELP);
      return null;
    }
    const rounds = Number(values.rounds ?? (values.quick ? 2 : 5));
    if (!Number.isInteger(rounds) || rounds < 1) throw new Error(`--rounds must be a whole number from 1.`);
    const names = values.targets.split(",");
    const unknown = names.find((name) => !TARGETS.includes(name));
    if (unknown !== undefined) throw new Error(`--targets: there is no '${unknown}'; there are ${TARGETS.join(", ")}.`);
    return { ...values, rounds, names: TARGETS.filter((name) => name !== "mock" && names.includes(name)) };
  } catch (error) {
    console.error(error.message.split("\n")[0]);
    process.exitCode = 2;
    return null;
  }
}

async function main({ rounds, quick, names, json, check }) {
  const size = quick
    ? { seconds: 2, warmUp: 3_000, ttfbStreams: 80, abortStreams: 5, streams: 2_000, chunks: 6 }
    : { seconds: 5, warmUp: 15_000, ttfbStreams: 300, abortStreams: 20, streams: 2_000, chunks: 20 };
  const folder = mkdtempSync(path.join(tmpdir(), "steerage-bench-"));
  const children = new Children();
  const load = short(loadavg()[0]);
  if (load > 0.5) say(`others use this machine too (load ${load}): ratios will suffer`);
  try {
    const mock = await startMock(children);
    const started = [];
    for (const name of names) started.push(await startGateway(name, { children, mock, folder }));
    const targets = [mock, ...started.filter(({ missing }) => missing === undefined)];
    const missing = started.flatMap((target) => target.missing ?? []);
    for (const text of missing) console.error(`left out: ${text}`);
    const rows = await measure(targets, mock, { rounds, size });
    const results = Object.fromEntries(targets.map(({ name }) => [name, summary(rows.get(name), rows.get("mock"))]));
    const bars = BARS.map(([bar, kind, limit, read]) => {
      const value = read(results) ?? null;
      const pass = value === null ? null : kind === "least" ? value >= limit : value <= limit;
      return { bar, [kind]: limit, value, pass };
    });
    report({ rounds, quick, machine: { cores: availableParallelism(), load }, results, bars, missing }, json);
    if (check && bars.some(({ pass }) => pass !== true)) process.exitCode = 1;
  } finally {
    await children.stop();
    rmSync(folder, { recursive: true, force: true });
  }
}

async function measure(targets, mock, { rounds, size }) {
  const rows = new Map(
    targets.map(({ name }) => [name, { rps16: [], rps64: [], cpuUs: [], ttfb: [], aborts: [], memory: null }]),
  );
  for (const target of targets) {
    say(`warming up ${target.name}`);
    await warmUp(target, { requests: size.warmUp });
  }
  for (let round = 0; round < rounds; round++) {
    say(`round ${round + 1} of ${rounds}`);
    for (const target of round % 2 === 0 ? targets : targets.toReversed()) {
      const row = rows.get(target.name);
      const beforeUs = processorUs(target.pid);
      const { answers, perSecond } = await requestsPerSecond(target, { connections: 16, seconds: size.seconds });
      if (beforeUs !== null) row.cpuUs.push((processorUs(target.pid) - beforeUs) / answers);
      row.rps16.push(perSecond);
      row.rps64.push((await requestsPerSecond(target, { connections: 64, seconds: size.seconds })).perSecond);
      row.ttfb.push(await firstPieceMs(target, { streams: size.ttfbStreams, lanes: 8 }));
    }
  }
  // Before the streams, which one of the targets does not have: what they take is told beside it.
  for (const target of targets) rows.get(target.name).memory = memoryOf(target.pid);
  for (const target of targets) {
    say(`leaving, and ${size.streams} streams: ${target.name}`);
    const row = rows.get(target.name);
    row.aborts = await abortMs(target, mock, { streams: size.abortStreams });
    // Another gateway's timers are no bar of ours, and 2,000 streams of it take minutes.
    if (target.name !== "portkey")
      row.streams = await manyStreams(target, mock, { streams: size.streams, chunks: size.chunks, everyMs: 500 });
    row.memoryAfterStreams = memoryOf(target.pid);
  }
  return rows;
}

function summary(row, mock) {
  const aborts = row.aborts.filter((ms) => ms !== null);
  const added = (share) =>
    median(row.ttfb.map((times, round) => percentile(times, share) - percentile(mock.ttfb[round], share)));
  return {
    rps16: whole(median(row.rps16)),
    rps64: whole(median(row.rps64)),
    cpu_us_per_request: whole(median(row.cpuUs)),
    ttfb_p50_ms: short(median(row.ttfb.map((times) => percentile(times, 0.5)))),
    ttfb_p99_ms: short(median(row.ttfb.map((times) => percentile(times, 0.99)))),
    added_ttfb_p50_ms: short(added(0.5)),
    added_ttfb_p99_ms: short(added(0.99)),
    abort_p50_ms: aborts.length === 0 ? null : short(median(aborts)),
    abort_max_ms: aborts.length === 0 ? null : short(Math.max(...aborts)),
    aborts_unheard: row.aborts.length - aborts.length,
    memory_mib: row.memory?.now ?? null,
    memory_peak_mib: row.memory?.peak ?? null,
    memory_after_streams_mib: row.memoryAfterStreams?.now ?? null,
    streams: row.streams ?? null,
    raw: { rps16: row.rps16.map(whole), rps64: row.rps64.map(whole), cpu_us: row.cpuUs.map(whole) },
  };
}

function report(result, json) {
  if (json) {
    console.log(JSON.stringify(result));
    return;
  }
  console.table(
    Object.fromEntries(
      Object.entries(result.results).map(([name, { streams, ...row }]) => [
        name,
        { ...row, raw: undefined, peak_streams: streams?.peak ?? null, lost_events: streams?.lost ?? null },
      ]),
    ),
  );
  console.table(result.bars);
}

function ratio(one, other) {
  return one === undefined || other === undefined ? undefined : short(one / other);
}

function whole(value) {
  return Number.isFinite(value) ? Math.round(value) : null;
}

function short(value) {
  return Number.isFinite(value) ? Number(value.toFixed(2)) : null;
}

/** Progress goes to stderr: stdout is the result's. */
function say(text) {
  console.error(text);
}
