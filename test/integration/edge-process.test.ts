import { spawn, type ChildProcess } from "node:child_process";
import { mkdtempSync, readdirSync, readFileSync, rmSync, statSync, writeFileSync } from "node:fs";
import type { ServerResponse } from "node:http";
import { createServer } from "node:net";
import { tmpdir } from "node:os";
import path from "node:path";
import { afterEach, beforeEach, describe, expect, it } from "vitest";
import { z } from "zod";
import { errorBodyOf } from "../support/error-body.ts";
import { chunkText, endOfStream, ScriptedEndpoint } from "../support/scripted-endpoint.ts";
import { REPOSITORY } from "../support/source-tree.ts";
import { until } from "../support/stack.ts";

const PROGRAM = path.join(REPOSITORY, "dist/edge/node/main.js");
const readySchema = z.object({ ready: z.literal(true), base_url: z.string(), metrics_url: z.string(), pid: z.int() });
const question = { model: "m", messages: [{ role: "user", content: "Count." }], stream: true };

/** A command of the edge as its own process. */
class EdgeProcess {
  readonly exited: Promise<number | null>;
  stdout = "";
  stderr = "";
  readonly #child: ChildProcess;

  constructor(args: readonly string[], environment: Record<string, string> = {}) {
    this.#child = spawn(process.execPath, [PROGRAM, ...args], {
      stdio: ["ignore", "pipe", "pipe"],
      env: { ...process.env, ...environment },
    });
    this.#child.stdout?.setEncoding("utf8").on("data", (text: string) => (this.stdout += text));
    this.#child.stderr?.setEncoding("utf8").on("data", (text: string) => (this.stderr += text));
    this.exited = new Promise((resolve) => this.#child.once("close", resolve));
  }

  async ready(): Promise<z.infer<typeof readySchema>> {
    await until(`the edge is ready; its log: ${this.stderr}`, () => this.stdout.includes("\n"), 20_000);
    return readySchema.parse(JSON.parse(this.stdout));
  }

  signal(name: NodeJS.Signals): void {
    this.#child.kill(name);
  }
}

const ask = (baseUrl: string): Promise<Response> =>
  fetch(`${baseUrl}/chat/completions`, {
    method: "POST",
    body: JSON.stringify(question),
    headers: { "content-type": "application/json" },
  });

describe("the edge as a process", () => {
  let folder: string;
  let endpoint: ScriptedEndpoint;
  const processes: EdgeProcess[] = [];

  const run = (args: readonly string[], environment: Record<string, string> = {}): EdgeProcess => {
    const one = new EdgeProcess(args, environment);
    processes.push(one);
    return one;
  };
  const configFile = (more: object = {}): string => {
    const file = path.join(folder, "edge.yaml");
    const free = "127.0.0.1:0";
    const document = {
      listen: free,
      admin_listen: free,
      auth: { enabled: false },
      endpoints: [{ id: "other", url: endpoint.url, models: ["m"] }],
      ...more,
    };
    writeFileSync(file, JSON.stringify(document));
    return file;
  };
  const exported = async (file: string): Promise<unknown[]> => {
    const command = run(["usage", "export", "--format", "jsonl", "--config", file]);
    expect(await command.exited).toBe(0);
    return command.stdout
      .trim()
      .split("\n")
      .filter((line) => line !== "")
      .map((line): unknown => JSON.parse(line));
  };

  beforeEach(async () => {
    folder = mkdtempSync(path.join(tmpdir(), "steerage-edge-process-"));
    endpoint = await ScriptedEndpoint.start();
  });
  afterEach(async () => {
    for (const one of processes.splice(0)) one.signal("SIGKILL");
    await endpoint.stop();
    rmSync(folder, { recursive: true, force: true });
  });

  it("drains at SIGTERM: running answers finish, new calls are told to come back, and it exits 0", async () => {
    const open: ServerResponse[] = [];
    endpoint.script = (request, response) => {
      if (!request.path.endsWith("/chat/completions")) {
        response.writeHead(404).end();
        return;
      }
      response.writeHead(200, { "content-type": "text/event-stream" }).write(chunkText({ content: "word " }));
      open.push(response);
    };
    const file = configFile();
    const edge = run(["serve", "--json", "--config", file]);
    const { base_url } = await edge.ready();
    const running = await ask(base_url);
    expect(running.status).toBe(200);
    edge.signal("SIGTERM");
    await until("new calls are refused", async () => (await fetch(base_url.replace("/v1", "/ready"))).status === 503);
    const refused = await ask(base_url);
    expect(refused.status).toBe(503);
    expect(Number(refused.headers.get("retry-after"))).toBeGreaterThanOrEqual(1);
    expect((await errorBodyOf(refused)).code).toBe("draining");
    open[0]?.end(endOfStream());
    expect((await running.text()).trimEnd().endsWith("data: [DONE]")).toBe(true);
    expect(await edge.exited).toBe(0);
    expect(await exported(file)).toMatchObject([{ outcome: "completed", completion_tokens: 5 }]);
  });

  it("ends at once at a second signal, exits 0 and keeps the row of what it cut", async () => {
    endpoint.script = (_request, response) => {
      response.writeHead(200, { "content-type": "text/event-stream" }).write(chunkText({ content: "word " }));
    };
    const file = configFile();
    const edge = run(["serve", "--json", "--config", file]);
    const { base_url } = await edge.ready();
    const running = await ask(base_url);
    expect(running.status).toBe(200);
    const cut = running.text();
    edge.signal("SIGTERM");
    await until("it drains", () => edge.stderr.includes("draining"));
    expect(edge.stderr).toContain("running=1");
    edge.signal("SIGINT");
    expect(await edge.exited).toBe(0);
    expect(await cut).toMatch(/data: \{"error":\{[^\n]*"code":"draining"\}\}\n\n$/);
    expect(await exported(file)).toMatchObject([{ outcome: "cancelled" }]);
  });

  it("keeps its signing key readable by its user only, and the same one after a restart", async () => {
    const file = configFile();
    const keyFile = path.join(folder, ".steerage", "keys", "edge-signing.json");
    const keys: string[] = [];
    for (let start = 0; start < 2; start++) {
      const edge = run(["serve", "--json", "--config", file]);
      await edge.ready();
      edge.signal("SIGTERM");
      expect(await edge.exited).toBe(0);
      keys.push(readFileSync(keyFile, "utf8"));
    }
    expect(statSync(keyFile).mode & 0o777).toBe(0o600);
    expect(keys[1]).toBe(keys[0]);
    expect(readdirSync(path.dirname(keyFile))).toEqual(["edge-signing.json"]);
  });

  it.each([
    ["a file that is not there", ["serve", "--config", "/nowhere/edge.yaml"], /\/nowhere\/edge\.yaml cannot be read/],
    ["an option that does not exist", ["serve", "--prot", "1"], /unknown option '--prot'/],
    ["a command that does not exist", ["sevre"], /unknown command 'sevre'/],
  ])("says in one line what is wrong with %s, and exits 2", async (_what, args, message) => {
    const edge = run(args);
    expect(await edge.exited).toBe(2);
    expect(edge.stderr.trim().split("\n")).toHaveLength(1);
    expect(edge.stderr).toMatch(message);
  });

  it.each([
    ["an unknown key", { router: { retrys: 1 } }, {}, /router: Unrecognized key: "retrys"/],
    ["a wrong value from the environment", {}, { STEERAGE_ROUTER__RETRIES: "many" }, /router\.retries/],
    ["reports in the clear off loopback", { agent_listen: "0.0.0.0:0" }, {}, /agent_listen.*insecure: true/],
  ])("refuses %s in one line", async (_what, more, environment, message) => {
    const edge = run(["serve", "--config", configFile(more)], environment);
    expect(await edge.exited).toBe(2);
    expect(
      edge.stderr
        .trim()
        .split("\n")
        .filter((line) => line.startsWith("steerage: ")),
    ).toHaveLength(1);
    expect(edge.stderr).toMatch(message);
    expect(edge.stderr).not.toMatch(/^\s+at /m);
  });

  it("names an address that is taken", async () => {
    const holder = createServer();
    await new Promise<void>((resolve) => holder.listen(0, "127.0.0.1", resolve));
    const address = holder.address();
    const port = typeof address === "object" && address !== null ? address.port : 0;
    const edge = run(["serve", "--config", configFile({ listen: `127.0.0.1:${port}` })]);
    expect(await edge.exited).toBe(2);
    expect(edge.stderr).toMatch(new RegExp(`listen cannot listen on 127\\.0\\.0\\.1:${port}: the address is in use`));
    await new Promise((resolve) => holder.close(resolve));
  });

  it("never writes a key to its log at any level, nor to its database, nor into an answer (C080)", async () => {
    const file = configFile({ auth: {}, logging: { level: "debug" } });
    const made = run(["keys", "create", "--project", "p", "--json", "--config", file]);
    expect(await made.exited).toBe(0);
    const { key } = z.object({ key: z.string() }).parse(JSON.parse(made.stdout));
    const edge = run(["serve", "--json", "--config", file]);
    const { base_url } = await edge.ready();
    const statuses: number[] = [];
    for (const authorization of [`Bearer ${key}`, `Bearer ${key}x`, `Basic ${key}`, null]) {
      const headers: Record<string, string> = authorization === null ? {} : { authorization };
      const answer = await fetch(`${base_url}/models?key=${key}&api_key=${key}`, { headers });
      statuses.push(answer.status);
      expect(await answer.text()).not.toContain(key.slice(-12));
    }
    // A key in the address is none.
    expect(statuses).toEqual([200, 401, 401, 401]);
    edge.signal("SIGTERM");
    expect(await edge.exited).toBe(0);
    expect(edge.stderr).not.toContain(key.slice(-12));
    for (const name of ["steerage.db", "steerage.db-wal"]) {
      const database = path.join(folder, ".steerage", name);
      if (!readdirSync(path.dirname(database)).includes(name)) continue;
      expect(readFileSync(database).includes(key.slice(-43))).toBe(false);
    }
  });
});
