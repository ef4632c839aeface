// Root cause: the host had no --version and told a taken address by its error code only; an edge without a file did not
// say which configuration it runs by.
import { execFile, spawn } from "node:child_process";
import { once } from "node:events";
import { readFileSync, writeFileSync } from "node:fs";
import { createServer } from "node:net";
import path from "node:path";
import { promisify } from "node:util";
import { afterEach, beforeEach, describe, expect, it } from "vitest";
import { REPOSITORY } from "../support/source-tree.ts";
import { temporaryFolder } from "../support/temporary-folder.ts";

const BACKEND = path.join(REPOSITORY, "dist/backend/main.js");
const EDGE = path.join(REPOSITORY, "dist/edge/node/main.js");

describe("the programs", () => {
  let folder: string;
  let remove: () => void;
  beforeEach(() => {
    ({ folder, remove } = temporaryFolder());
  });
  afterEach(() => remove());

  it.each([BACKEND, EDGE])("tell their version: %s", async (program) => {
    const { stdout } = await promisify(execFile)(process.execPath, [program, "--version"], { cwd: folder });
    expect(readFileSync(path.join(REPOSITORY, "package.json"), "utf8")).toContain(`"version": "${stdout.trim()}"`);
  });

  it("name an address that a host cannot have, in one line", async () => {
    const holder = createServer().listen(0, "127.0.0.1");
    await once(holder, "listening");
    const taken = holder.address();
    const listen = `127.0.0.1:${typeof taken === "object" && taken !== null ? taken.port : 0}`;
    const file = path.join(folder, "host.yaml");
    writeFileSync(
      file,
      JSON.stringify({ node_id: "gpu-1", listen, data: "data", models: [{ name: "m", engine: "sim" }] }),
    );
    const host = spawn(process.execPath, [BACKEND, "serve", "--config", file], { stdio: ["ignore", "ignore", "pipe"] });
    let stderr = "";
    host.stderr.setEncoding("utf8").on("data", (text: string) => (stderr += text));
    await once(host, "close");
    holder.close();
    expect(host.exitCode).toBe(2);
    expect(stderr.split("\n").filter((line) => line.startsWith("steerage-backend:"))).toEqual([
      `steerage-backend: listen: cannot listen on ${listen}: the address is in use`,
    ]);
    expect(stderr).not.toMatch(/^\s+at /m);
  });

  it("say what an edge without a file runs by", async () => {
    const edge = spawn(process.execPath, [EDGE, "serve"], {
      cwd: folder,
      stdio: ["ignore", "pipe", "pipe"],
      env: { ...process.env, STEERAGE_LISTEN: "127.0.0.1:0", STEERAGE_ADMIN_LISTEN: "127.0.0.1:0" },
    });
    let stderr = "";
    edge.stderr.setEncoding("utf8").on("data", (text: string) => (stderr += text));
    await once(edge.stdout, "data");
    edge.kill("SIGTERM");
    await once(edge, "close");
    expect(stderr).toMatch(/no --config was given.*listen 127\.0\.0\.1:0.*data \S+\.steerage\n/);
  });
});
