// Requests per second through the edge against a mock endpoint on loopback, and directly at that mock, interleaved.
// usage: node test/bench/edge-requests.mjs [--seconds 4] [--rounds 3] [--connections 16] [--stream] [--json]
import { spawn, execFileSync } from "node:child_process";
import { mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { createServer } from "node:http";
import { tmpdir } from "node:os";
import path from "node:path";
import { fileURLToPath } from "node:url";
import { parseArgs } from "node:util";
import { Pool } from "undici";

const ROOT = path.resolve(path.dirname(fileURLToPath(import.meta.url)), "../..");
const { values } = parseArgs({
  options: {
    seconds: { type: "string", default: "4" },
    rounds: { type: "string", default: "3" },
    connections: { type: "string", default: "16" },
    stream: { type: "boolean", default: false },
    json: { type: "boolean", default: false },
    mock: { type: "string" },
    help: { type: "boolean", default: false },
  },
});
if (values.help) {
  console.log(
    "usage: node test/bench/edge-requests.mjs [--seconds N] [--rounds N] [--connections N] [--stream] [--json]",
  );
} else if (values.mock !== undefined) {
  serveMock(Number(values.mock));
} else {
  await measure();
}

/** Answers a small chat completion at once, whole or as a stream of eight deltas. */
function serveMock(port) {
  const usage = { prompt_tokens: 12, completion_tokens: 8, total_tokens: 20 };
  const head = { id: "chatcmpl-mock", created: 1, model: "mock" };
  const whole = JSON.stringify({
    ...head,
    object: "chat.completion",
    choices: [
      {
        index: 0,
        message: { role: "assistant", content: "one two three four" },
        logprobs: null,
        finish_reason: "stop",
      },
    ],
    usage,
  });
  const chunk = (choices, more = {}) =>
    `data: ${JSON.stringify({ ...head, object: "chat.completion.chunk", choices, ...more })}\n\n`;
  const stream = [
    ...Array.from({ length: 8 }, (_, i) => chunk([{ index: 0, delta: { content: `word${i} ` }, finish_reason: null }])),
    chunk([{ index: 0, delta: {}, finish_reason: "stop" }]),
    chunk([], { usage }),
    "data: [DONE]\n\n",
  ];
  createServer((request, response) => {
    const parts = [];
    request.on("data", (part) => parts.push(part));
    request.on("end", () => {
      if (!Buffer.concat(parts).includes('"stream":true')) {
        response.writeHead(200, { "content-type": "application/json" }).end(whole);
        return;
      }
      response.writeHead(200, { "content-type": "text/event-stream" });
      for (const event of stream) response.write(event);
      response.end();
    });
  }).listen(port, "127.0.0.1", () => console.log("listening"));
}

async function measure() {
  const folder = mkdtempSync(path.join(tmpdir(), "steerage-bench-"));
  const base = 20_000 + Math.floor(Math.random() * 10_000) * 4;
  const [edgePort, adminPort, metricsPort, mockPort] = [base, base + 1, base + 2, base + 3];
  const config = path.join(folder, "edge.yaml");
  const document = {
    listen: `127.0.0.1:${edgePort}`,
    admin_listen: `127.0.0.1:${adminPort}`,
    metrics_listen: `127.0.0.1:${metricsPort}`,
    data: folder,
    endpoints: [{ id: "mock", url: `http://127.0.0.1:${mockPort}`, models: ["mock"], slots: 256 }],
  };
  writeFileSync(config, JSON.stringify(document));
  const cli = path.join(ROOT, "bin/steerage.mjs");
  const mock = spawn(process.execPath, [fileURLToPath(import.meta.url), "--mock", String(mockPort)], {
    stdio: ["ignore", "pipe", "inherit"],
  });
  execFileSync(process.execPath, [cli, "migrate", "--config", config]);
  const made = execFileSync(process.execPath, [
    cli,
    "keys",
    "create",
    "--project",
    "bench",
    "--rpm",
    "0",
    "--tpm",
    "0",
    "--json",
    "--config",
    config,
  ]);
  const { key } = JSON.parse(made.toString());
  const edge = spawn(process.execPath, [cli, "serve", "--config", config], { stdio: ["ignore", "ignore", "inherit"] });
  try {
    await answering(`http://127.0.0.1:${edgePort}/health`);
    const targets = { direct: `http://127.0.0.1:${mockPort}`, edge: `http://127.0.0.1:${edgePort}` };
    const rates = { direct: [], edge: [] };
    for (const target of Object.values(targets)) await load(target, key, 1);
    for (let round = 0; round < Number(values.rounds); round++) {
      const order = round % 2 === 0 ? ["direct", "edge"] : ["edge", "direct"];
      for (const name of order) rates[name].push(await load(targets[name], key, Number(values.seconds)));
    }
    report(rates);
  } finally {
    edge.kill("SIGTERM");
    mock.kill();
    await new Promise((resolve) => edge.once("exit", resolve));
    rmSync(folder, { recursive: true, force: true });
  }
}

/** Closed loop over `connections` connections; answers requests per second. Any answer but 200 ends the bench. */
async function load(origin, key, seconds) {
  const connections = Number(values.connections);
  const pool = new Pool(origin, { connections, pipelining: 1 });
  const body = JSON.stringify({
    model: "mock",
    messages: [{ role: "user", content: "hello" }],
    max_tokens: 16,
    stream: values.stream,
  });
  const started = performance.now();
  const end = started + seconds * 1_000;
  let done = 0;
  const loop = async () => {
    while (performance.now() < end) {
      const answer = await pool.request({
        path: "/v1/chat/completions",
        method: "POST",
        headers: { "content-type": "application/json", authorization: `Bearer ${key}` },
        body,
      });
      const text = await answer.body.text();
      if (answer.statusCode !== 200) throw new Error(`${answer.statusCode} ${text.slice(0, 200)}`);
      done++;
    }
  };
  await Promise.all(Array.from({ length: connections }, loop));
  const rate = done / ((performance.now() - started) / 1_000);
  await pool.close();
  return rate;
}

async function answering(url) {
  for (let tries = 0; tries < 200; tries++) {
    if (
      await fetch(url).then(
        (response) => response.ok,
        () => false,
      )
    )
      return;
    await new Promise((resolve) => setTimeout(resolve, 50));
  }
  throw new Error(`${url} does not answer`);
}

function median(list) {
  return list.toSorted((a, b) => a - b)[Math.floor(list.length / 2)];
}

function report(rates) {
  const result = {
    stream: values.stream,
    connections: Number(values.connections),
    direct_per_second: Math.round(median(rates.direct)),
    edge_per_second: Math.round(median(rates.edge)),
    ratio: Number((median(rates.edge) / median(rates.direct)).toFixed(3)),
    raw: { direct: rates.direct.map(Math.round), edge: rates.edge.map(Math.round) },
  };
  console.log(values.json ? JSON.stringify(result) : result);
}
