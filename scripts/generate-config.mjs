#!/usr/bin/env node
// Writes edge/CONFIG.md, backend/CONFIG.md and shared/errors/ERRORS.md from the compiled schemas and the error registry,
// so that they cannot drift from the code.
import { existsSync, readFileSync, writeFileSync } from "node:fs";
import path from "node:path";
import { fileURLToPath, pathToFileURL } from "node:url";

const HELP = `usage: node scripts/generate-config.mjs [--check]

Writes edge/CONFIG.md, backend/CONFIG.md and shared/errors/ERRORS.md from the schemas and the error registry in dist/.

  --check   writes nothing; exits with 1 and names the files that differ
  --help    this text`;

const root = path.resolve(path.dirname(fileURLToPath(import.meta.url)), "..");

const EDGE_INTRODUCTION = `Configuration of the edge, read by every \`steerage\` command: YAML, given with \`--config FILE\`. Every key has a default, so an empty
file is a valid one; a key that is not in this table is refused by name. Order of precedence: command-line flag, environment, file,
default. Durations are written \`200ms\`, \`10s\`, \`5m\`, \`24h\`; sizes \`4MiB\`; an address is \`host:port\`.

\`\`\`yaml
listen: 0.0.0.0:8080
metrics_listen: 127.0.0.1:9090
data: /var/lib/steerage
auth:
  default_rpm: 120
  pricing:
    my-model: { prompt_per_1k: 150, completion_per_1k: 600 }
endpoints:
  - id: other-server
    url: https://inference.example
    models: [my-model]
    api_key_env: OTHER_SERVER_KEY
    labels: { zone: eu }
router:
  profiles:
    quick: { slo: 4, hedging: true }
models:
  - name: my-model
    aliases: [default]
    fallbacks: [my-small-model]
    routing_profile: quick
    slo: { ttft_p99: 800ms, tpot_p99: 40ms }
    node_selector: { zone: eu }
\`\`\`

- \`steerage config check FILE\` says what \`serve\` would say of a file. SIGHUP makes a running edge read its file again and apply it, whole
  or not at all: the log says which, and why. Send it to the edge's own process: \`npx\` in front of it ends and passes
  nothing on. Requests keep the settings that they began with; what waits is judged by the new ones.
  Sockets, \`name\`, \`data\`, \`auth.store\`, the journal's settings, \`control.lease_ttl\` and \`logging.format\` need a restart.
- \`data\` holds the usage journal, the embedded database and the edge's private key (\`keys/edge-signing.json\`, mode 0600: one or two JWKs,
  the first signs and all are published to hosts, so a new key goes in second place first).
  \`fleet.json\` is a cache of what hosts reported last, so that models are known by name after a restart; it may be deleted.
- Usage lines are handed to the operating system at the end of the turn in which they arise and made durable (fsync) by the flush, so a
  crash of the process loses nothing and a power cut at most \`auth.flush_interval\`.
- Several edges may share one database (\`auth.store\`), each with its own \`name\` and \`data\`. They take limits in slices that are smaller near
  the limit. **Money** is never overspent by all of them together, also when edges die: what a killed edge held stays counted until its
  requests are settled, it starts again with its \`data\`, or a day has passed. **Requests and tokens** per minute exceed what one edge would let in by at
  most an eighth of the limit and one request for each edge; an edge that is cut off from the database goes on with its N-th part of each rate,
  which the others do not know of, and with no more money than it holds. What a dead edge held of rates is free within a minute.
- A prompt token costs \`prompt_per_1k\` nano-dollars: micro-dollars per 1,000 tokens are nano-dollars per token, and sums never round.
`;

const LLMGW_INTRODUCTION = `## Coming from llmgw

Every key of llmgw's configuration, by its block there. "Honoured" keeps name and meaning; a file that still has a key that is not read
is refused, and the message says where its meaning went.
`;

const HOST_INTRODUCTION = `Configuration of a backend host, read by \`steerage-backend serve --config FILE\`: YAML. A key that is not in this table is refused by name.
The environment wins over the file; where miLLM had a variable of the same meaning, that name is used. Relative paths start at the
file's own folder.

\`\`\`yaml
node_id: gpu-1
listen: 127.0.0.1:8090
servers: [http://127.0.0.1:8081]
token_file: host-token
models:
  - name: my-model
    source: /models/my-model.gguf
    saes:
      - id: my-sae
        source: /saes/my-sae
\`\`\`
`;

const unknown = process.argv.slice(2).filter((flag) => !["--check", "--help"].includes(flag));
if (process.argv.includes("--help") || unknown.length > 0) {
  console.error(unknown.length > 0 ? `generate-config: unknown option ${unknown[0]}; see --help` : HELP);
  process.exit(unknown.length > 0 ? 2 : 0);
}

const { configTable } = await built("shared/config/reference.js");
const { environmentName } = await built("shared/config/environment.js");
const edge = await built("edge/config.js");
const host = await built("backend/config.js");
const { llmgwTable } = await built("edge/config/llmgw-keys.js");
const { ERRORS } = await built("shared/errors/registry.js");
const documents = {
  "shared/errors/ERRORS.md": errorDocument(ERRORS),
  "edge/CONFIG.md": documentOf(
    "the edge",
    EDGE_INTRODUCTION,
    `${configTable(edge.edgeConfigSchema, (key) => environmentName(edge.EDGE_ENVIRONMENT_PREFIX, key))}
${LLMGW_INTRODUCTION}
${llmgwTable()}`,
  ),
  "backend/CONFIG.md": documentOf(
    "a backend host",
    HOST_INTRODUCTION,
    configTable(host.hostConfigSchema, host.hostEnvironmentName),
  ),
};

for (const [name, text] of Object.entries(documents)) {
  const file = path.join(root, name);
  const present = existsSync(file) ? readFileSync(file, "utf8") : "";
  if (present === text) continue;
  if (process.argv.includes("--check")) {
    console.error(`${name} differs from its source: run 'npm run config:docs'`);
    process.exitCode = 1;
  } else {
    writeFileSync(file, text);
    console.error(`wrote ${name}`);
  }
}

async function built(module) {
  const file = path.join(root, "dist", module);
  if (!existsSync(file)) {
    console.error(`generate-config: dist/${module} is missing: run 'npm run build' first`);
    process.exit(2);
  }
  return import(pathToFileURL(file).href);
}

function documentOf(what, introduction, table) {
  return `# Configuration of ${what}\n\nGenerated by \`npm run config:docs\`; do not edit.\n\n${introduction}\n${table}`;
}

function errorDocument(registry) {
  const cell = (text) => text.replaceAll("|", "\\|");
  const rows = Object.entries(registry).map(
    ([code, { status, type, retryable, message, documentation }]) =>
      `| \`${code}\` | ${status} | \`${type}\` | ${retryable ? "yes" : "no"} | ${cell(message)} | ${cell(documentation)} |`,
  );
  return `# Errors

Generated by \`npm run config:docs\`; do not edit.

The body is always \`{"error":{"message","type","param","code"}}\`, inside a stream too, where it is the last event and no \`[DONE]\` follows.
Branch on \`code\`. The header \`X-Steerage-Error-Source\` says whether \`edge\` or \`backend\` refused or failed. What can be retried carries
\`Retry-After\` in whole seconds.

| code | status | type | retry | message | what to do |
|---|---|---|---|---|---|
${rows.join("\n")}
`;
}
