// One command from a fresh clone to a steered answer: sets up, writes two configuration files, starts an edge and a
// backend host with the embedded demo model as children, and stays in front of them.
import { spawn } from "node:child_process";
import { existsSync, mkdirSync, readFileSync, writeFileSync } from "node:fs";
import { createServer } from "node:net";
import path from "node:path";
import { createInterface } from "node:readline";
import { pathToFileURL } from "node:url";
import { parseArgs } from "node:util";
import { main, ROOT, say, setUp, SetupError, UsageError } from "./setup.mjs";

const MODEL = "demo-storyteller-1m";
const PROJECT = "demo";
const HOST = "local";
const READY_TIMEOUT_MS = 60_000;
const HELP = `usage: npm run up -- [options]

Installs and builds what is missing, then starts an edge, a backend host and the demo model on this machine.

  --port N          the public API, OpenAI-compatible      (8080)
  --admin-port N    admin and host reports, loopback only  (8081)
  --metrics-port N  Prometheus metrics, loopback only      (9090)
  --backend-port N  the backend host, loopback only        (8090)
  --data DIR        database, journal, keys, configuration (.steerage)
  --json            one JSON line on stdout when ready, nothing else there
  --help            this text

Ctrl-C or SIGTERM lets running requests finish and stops everything; a second one stops at once.`;

function readOptions() {
  let values;
  try {
    ({ values } = parseArgs({
      options: {
        port: { type: "string", default: "8080" },
        "admin-port": { type: "string", default: "8081" },
        "metrics-port": { type: "string", default: "9090" },
        "backend-port": { type: "string", default: "8090" },
        data: { type: "string", default: ".steerage" },
        json: { type: "boolean", default: false },
        help: { type: "boolean", default: false },
      },
    }));
  } catch (error) {
    throw new UsageError(`${error.message.split("\n")[0].replace(/\.$/, "")}. See 'npm run up -- --help'.`);
  }
  if (values.help) {
    process.stdout.write(`${HELP}\n`);
    return null;
  }
  const port = (name) => {
    const number = Number(values[name]);
    if (Number.isInteger(number) && number > 0 && number < 65_536) return number;
    throw new UsageError(`--${name} must be a port number from 1 to 65535, not '${values[name]}'.`);
  };
  const ports = {
    public: port("port"),
    admin: port("admin-port"),
    metrics: port("metrics-port"),
    backend: port("backend-port"),
  };
  if (new Set(Object.values(ports)).size < 4) throw new UsageError("The four ports must differ from each other.");
  return { ports, data: path.resolve(values.data), json: values.json };
}

/** A taken port is told before anything starts, with the way out. */
async function checkPorts(ports) {
  for (const [name, port] of Object.entries(ports)) {
    const fault = await new Promise((resolve) => {
      const probe = createServer().once("error", resolve);
      probe.listen(port, "127.0.0.1", () => probe.close(() => resolve(null)));
    });
    if (fault === null) continue;
    const flag = name === "public" ? "--port" : `--${name}-port`;
    throw new SetupError(
      `127.0.0.1:${port} cannot be used (${fault.code}). Stop what runs there, perhaps an earlier 'npm run up', ` +
        `or choose another port: npm run up -- ${flag} N`,
    );
  }
}

/** One `up` for one folder: nothing in it is touched while another process lives by it. */
async function takeFolder(data) {
  const module = path.join(ROOT, "dist", "edge", "node", "folder-lock.js");
  const { holderOf, lockFolder } = await import(pathToFileURL(module).href);
  const refuse = (pid) => {
    throw new SetupError(
      `${data} is in use by process ${pid}. Stop that one first, or choose another folder: --data DIR`,
    );
  };
  mkdirSync(data, { recursive: true, mode: 0o700 });
  for (const part of ["", "journal", "host"]) {
    const pid = await holderOf(path.join(data, part));
    if (pid !== null) refuse(pid);
  }
  let unlock;
  try {
    unlock = await lockFolder(data);
  } catch (error) {
    const pid = await holderOf(data);
    if (pid === null) throw error;
    refuse(pid);
  }
  process.once("exit", unlock);
}

async function startStack({ ports, data, json }) {
  const stack = new Stack();
  await takeFolder(data);
  await checkPorts(ports);
  const files = writeConfigs({ ports, data });
  await command("edge/node/main.js", ["migrate", "--config", files.edge]);
  const token = await hostTokenOnce({ data, config: files.edge });

  // Stopped before anything was started: the small commands above have come to their end all the same.
  if (stack.stopping) process.exit(0);
  stack.start("edge", "edge/node/main.js", ["serve", "--json", "--config", files.edge]);
  stack.start("backend", "backend/main.js", ["serve", "--config", files.host], { STEERAGE_HOST_TOKEN: token });
  const metricsUrl = `http://127.0.0.1:${ports.metrics}/metrics`;
  if (await stack.untilReady(metricsUrl)) {
    const apiKey = await keyOnce({ data, config: files.edge }).catch(async (error) => {
      await stack.abandon();
      throw error;
    });
    if (!stack.stopping) announce({ ports, data, metricsUrl, apiKey, json });
  }
  // Said aloud: while Node takes itself down a further signal would look like a crash.
  process.exit(await stack.ended);
}

const NOTE = "# Written by 'npm run up' at every start: copy it to change it.";
const write = (file, document) =>
  writeFileSync(file, `${NOTE}\n${JSON.stringify(document, null, 2)}\n`, { mode: 0o600 });
/** JSON is YAML, so no library is needed to write what the programs read as YAML. */
function writeConfigs({ ports, data }) {
  const edge = path.join(data, "edge.yaml");
  const host = path.join(data, "host.yaml");
  const demo = path.join(ROOT, "backend", "demo");
  write(edge, {
    name: "local-edge",
    listen: `127.0.0.1:${ports.public}`,
    admin_listen: `127.0.0.1:${ports.admin}`,
    metrics_listen: `127.0.0.1:${ports.metrics}`,
    data,
    // Micro-dollars per 1,000 tokens: something to see in the bill.
    auth: { default_price: { prompt_per_1k: 50, cached_per_1k: 10, completion_per_1k: 200 } },
  });
  write(host, {
    node_id: HOST,
    listen: `127.0.0.1:${ports.backend}`,
    url: `http://127.0.0.1:${ports.backend}`,
    servers: [`http://127.0.0.1:${ports.admin}`],
    data: path.join(data, "host"),
    models: [
      {
        name: MODEL,
        source: path.join(demo, `${MODEL}.q8_0.gguf`),
        saes: ["demo-l1", "demo-l2"].map((id) => ({ id, source: path.join(demo, id) })),
      },
    ],
  });
  return { edge, host };
}

/** The first start makes a key and shows it; later ones cannot, since only its hash is kept. */
async function keyOnce({ data, config }) {
  const mark = path.join(data, "demo-key.json");
  if (existsSync(mark)) return null;
  const limits = ["--rpm", "100000", "--tpm", "100000000", "--budget-usd", "1000000"];
  const made = await command("edge/node/main.js", [
    "keys",
    "create",
    "--project",
    PROJECT,
    ...limits,
    "--json",
    "--config",
    config,
  ]);
  const { id, key } = JSON.parse(made);
  writeFileSync(mark, `${JSON.stringify({ id, project: PROJECT })}\n`, { mode: 0o600 });
  return key;
}

async function hostTokenOnce({ data, config }) {
  const file = path.join(data, "host-token");
  if (!existsSync(file)) {
    const { token } = JSON.parse(
      await command("edge/node/main.js", ["hosts", "enroll", HOST, "--json", "--config", config]),
    );
    writeFileSync(file, token, { mode: 0o600 });
  }
  return readFileSync(file, "utf8").trim();
}

/** Runs one of our own commands to its end and gives back its stdout. */
async function command(program, args) {
  const child = spawn(process.execPath, [path.join(ROOT, "dist", program), ...args], {
    stdio: ["ignore", "pipe", "inherit"],
    detached: true,
  });
  let out = "";
  child.stdout.setEncoding("utf8").on("data", (text) => (out += text));
  const code = await new Promise((resolve) => child.once("close", resolve));
  if (code !== 0) throw new SetupError(`'${args.slice(0, 2).join(" ")}' failed; its message is above.`);
  return out;
}

class Stack {
  #children = new Map();
  #edgeReady = false;
  #failed = false;
  #end = () => {};
  stopping = false;
  ended = new Promise((resolve) => {
    this.#end = resolve;
  });

  constructor() {
    for (const signal of ["SIGTERM", "SIGINT", "SIGHUP"]) process.on(signal, () => this.#stop());
  }

  start(name, program, args, environment = {}) {
    const child = spawn(process.execPath, [path.join(ROOT, "dist", program), ...args], {
      stdio: ["ignore", "pipe", "pipe"],
      env: { ...process.env, ...environment },
      // A group of its own: Ctrl-C reaches this process only, which then stops the others in order.
      detached: true,
    });
    this.#children.set(name, child);
    const relay = (line) => process.stderr.write(`${name.padEnd(7)} | ${line}\n`);
    createInterface({ input: child.stderr }).on("line", relay);
    createInterface({ input: child.stdout }).on("line", (line) => {
      // The edge's one line: all its ports are its own now, so what answers there is not another stack.
      if (name === "edge" && line.startsWith('{"ready":true')) this.#edgeReady = true;
      else relay(line);
    });
    child.once("exit", (code, signal) => this.#exited(name, code ?? signal));
  }

  /** Edge first: it refuses new calls and waits for running ones, which need the backend to finish. */
  #stop() {
    const again = this.stopping;
    this.stopping = true;
    const edge = this.#children.get("edge");
    if (edge !== undefined) edge.kill("SIGTERM");
    if (edge === undefined || again) this.#children.get("backend")?.kill("SIGTERM");
    if (this.#children.size === 0) this.#end(this.#failed ? 1 : 0);
  }

  #exited(name, status) {
    this.#children.delete(name);
    // A program that was stopped before it could listen to signals is none that failed.
    if (status !== 0 && !(this.stopping && !this.#edgeReady && status === "SIGTERM")) this.#failed = true;
    if (!this.stopping) {
      say(`The ${name} ended unexpectedly (${status}); its last lines are above. Stopping.`);
      this.#failed = true;
    }
    this.#stop();
  }

  /** True when our edge sees our backend's model; false when it was stopped before. */
  async untilReady(metricsUrl) {
    const ready = new RegExp(`^steerage_replicas\\{[^}]*model="${MODEL}"[^}]*state="ready"[^}]*\\} [1-9]`, "m");
    const end = Date.now() + READY_TIMEOUT_MS;
    while (Date.now() < end && !this.stopping) {
      const text = this.#edgeReady
        ? await fetch(metricsUrl).then(
            (response) => response.text(),
            () => "",
          )
        : "";
      if (ready.test(text) && !this.stopping) return true;
      await new Promise((resolve) => setTimeout(resolve, 50));
    }
    if (this.stopping) return false;
    say("The demo model did not get ready; the log above says why. Stopping.");
    await this.abandon();
    return false;
  }

  async abandon() {
    this.#failed = true;
    this.#stop();
    await this.ended;
  }
}

function announce({ ports, data, metricsUrl, apiKey, json }) {
  const baseUrl = `http://127.0.0.1:${ports.public}/v1`;
  const adminUrl = `http://127.0.0.1:${ports.admin}`;
  const elsewhere = data === path.join(ROOT, ".steerage") ? "" : ` --data '${data}'`;
  const hint = `was shown when it was made. Another one: npx steerage keys create --project ${PROJECT}${elsewhere}`;
  if (json) {
    if (apiKey === null) say(`The API key ${hint}`);
    const line = {
      ready: true,
      base_url: baseUrl,
      admin_url: adminUrl,
      metrics_url: metricsUrl,
      api_key: apiKey,
      model: MODEL,
      pid: process.pid,
    };
    process.stdout.write(`${JSON.stringify(line)}\n`);
    return;
  }
  const curl = (steering) =>
    `curl ${baseUrl}/chat/completions -H "Authorization: Bearer ${apiKey ?? "$STEERAGE_KEY"}" -H 'Content-Type: application/json' \\\n` +
    `  -d '{"model":"${MODEL}","messages":[{"role":"user","content":"Tell me a story."}],"max_tokens":60${steering}}'`;
  process.stdout.write(`
Steerage is ready.

  base URL  ${baseUrl}
  API key   ${apiKey ?? hint}
  overview  http://127.0.0.1:${ports.public}/
  operators ${adminUrl}/
  metrics   ${metricsUrl}

A plain answer:
${curl("")}

The same, steered towards the sea (feature 501 of the SAE demo-l1):
${curl(`,"steering":{"sae_id":"demo-l1","features":[{"index":501,"strength":30}]}`)}

Ctrl-C stops it.
`);
}

await main(async () => {
  const options = readOptions();
  if (options === null) return;
  await setUp();
  await startStack(options);
});
