// What is measured beside each other: the mock alone, two plain proxies, another gateway, and the edge with everything
// on. Each is { name, origin, headers, pid }; one that cannot be had on this machine is { name, missing }.
import { execFileSync } from "node:child_process";
import { existsSync, mkdirSync, writeFileSync } from "node:fs";
import path from "node:path";
import { fileURLToPath } from "node:url";
import { freePort, programOf } from "./processes.mjs";

const ROOT = path.resolve(path.dirname(fileURLToPath(import.meta.url)), "../../..");
const DEBIAN = "apt-get install -y nginx-light haproxy";

export const TARGETS = ["mock", "nginx", "haproxy", "portkey", "edge"];

export async function startMock(children) {
  const port = await freePort();
  const pid = await children.start(process.execPath, [path.join(ROOT, "test/bench/edge/mock.mjs"), String(port)], {
    port,
  });
  return { name: "mock", origin: `http://127.0.0.1:${port}`, headers: {}, pid, port };
}

/** `folder` is for configuration and data, and is removed by whoever gave it. */
export async function startGateway(name, { children, mock, folder }) {
  const port = await freePort();
  const target = (pid, headers = {}) => ({ name, origin: `http://127.0.0.1:${port}`, headers, pid });
  switch (name) {
    case "nginx": {
      const program = programOf("nginx", "/usr/sbin/nginx");
      if (program === null) return { name, missing: `nginx is not installed: ${DEBIAN}` };
      const file = path.join(folder, "nginx.conf");
      writeFileSync(file, nginxConfig(folder, port, mock.port));
      return target(await children.start(program, ["-p", folder, "-c", file, "-e", "stderr"], { port }));
    }
    case "haproxy": {
      const program = programOf("haproxy", "/usr/sbin/haproxy");
      if (program === null) return { name, missing: `haproxy is not installed: ${DEBIAN}` };
      const file = path.join(folder, "haproxy.cfg");
      writeFileSync(file, haproxyConfig(port, mock.port));
      return target(await children.start(program, ["-db", "-f", file], { port }));
    }
    case "portkey": {
      const program = installedPortkey();
      if (program === null) return { name, missing: "@portkey-ai/gateway could not be installed from npm" };
      const pid = await children.start(process.execPath, [program, `--port=${port}`, "--headless"], { port });
      return target(pid, {
        "x-portkey-provider": "openai",
        "x-portkey-custom-host": `${mock.origin}/v1`,
        authorization: "Bearer none",
      });
    }
    case "edge": {
      const { file, key } = await edgeConfig({ folder, port, mock });
      const cli = path.join(ROOT, "bin/steerage.mjs");
      // By the file itself, as npx starts it: its first line has flags for Node.
      const pid = await children.start(cli, ["serve", "--config", file], { port });
      return target(pid, { authorization: `Bearer ${key}` });
    }
    default:
      throw new Error(`there is no target '${name}'; there are: ${TARGETS.join(", ")}`);
  }
}

function nginxConfig(folder, port, upstream) {
  const temporary = ["client_body", "proxy", "fastcgi", "uwsgi", "scgi"]
    .map((kind) => `${kind}_temp_path ${folder}/${kind};`)
    .join(" ");
  return `daemon off; master_process off; pid ${folder}/nginx.pid;
events { worker_connections 8192; }
http {
  access_log off; keepalive_requests 1000000000; ${temporary}
  upstream mock { server 127.0.0.1:${upstream}; keepalive 4096; keepalive_requests 1000000000; }
  server {
    listen 127.0.0.1:${port} backlog=4096;
    location / { proxy_pass http://mock; proxy_http_version 1.1; proxy_set_header Connection ""; proxy_buffering off; }
  }
}
`;
}

function haproxyConfig(port, upstream) {
  return `global
  nbthread 1
  maxconn 4500
defaults
  mode http
  option http-no-delay
  timeout connect 5s
  timeout client 60s
  timeout server 60s
frontend in
  bind 127.0.0.1:${port}
  default_backend mock
backend mock
  http-reuse always
  server mock 127.0.0.1:${upstream}
`;
}

/** Version 1.15.2 with the two libraries of its own lock file: with today's it answers 500 to every stream. */
function installedPortkey() {
  const folder = path.join(ROOT, "build/bench/portkey");
  const program = path.join(folder, "node_modules/@portkey-ai/gateway/build/start-server.js");
  if (existsSync(program)) return program;
  mkdirSync(folder, { recursive: true });
  const manifest = {
    private: true,
    dependencies: { "@portkey-ai/gateway": "1.15.2" },
    overrides: { "@hono/node-server": "1.13.5", hono: "4.9.7" },
  };
  writeFileSync(path.join(folder, "package.json"), JSON.stringify(manifest));
  try {
    execFileSync("npm", ["install", "--ignore-scripts", "--no-audit", "--no-fund"], { cwd: folder, stdio: "ignore" });
  } catch {
    return null;
  }
  return existsSync(program) ? program : null;
}

/** Keys, rates, a budget, prices, admission with slots, routing and the ledger in an embedded database. */
async function edgeConfig({ folder, port, mock }) {
  const data = path.join(folder, "edge");
  mkdirSync(data);
  const file = path.join(folder, "edge.yaml");
  const config = {
    listen: `127.0.0.1:${port}`,
    admin_listen: `127.0.0.1:${await freePort()}`,
    metrics_listen: "",
    data,
    auth: { pricing: { mock: { prompt_per_1k: 150, completion_per_1k: 600 } } },
    endpoints: [{ id: "mock", url: mock.origin, models: ["mock"], slots: 4_096 }],
  };
  writeFileSync(file, JSON.stringify(config));
  const cli = path.join(ROOT, "bin/steerage.mjs");
  const limits = ["--rpm", "100000000", "--tpm", "1000000000", "--budget-usd", "1000000"];
  const made = execFileSync(
    process.execPath,
    [cli, "keys", "create", "--project", "bench", ...limits, "--json", "--config", file],
    { stdio: ["ignore", "pipe", "ignore"] },
  );
  return { file, key: JSON.parse(made.toString()).key };
}
