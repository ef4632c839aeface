import { spawn, type ChildProcess } from "node:child_process";
import { connect, type Socket } from "node:net";
import { afterEach, describe, expect, it } from "vitest";
import { UndiciUpstream } from "../../edge/node/upstream.undici.ts";
import type { UpstreamFailure } from "../../edge/ports/upstream.ts";
import { waitFor } from "../support/scripted-upstream.ts";

/** Listens with the shortest backlog and then blocks, so that it never accepts. */
const DEAF_SERVER = `
  const server = require("node:net").createServer();
  server.listen({ port: 0, host: "127.0.0.1", backlog: 1 }, () => {
    process.stdout.write(String(server.address().port));
    setTimeout(() => Atomics.wait(new Int32Array(new SharedArrayBuffer(4)), 0, 0), 50);
  });`;

describe("dialling", () => {
  let child: ChildProcess | null = null;
  const sockets: Socket[] = [];
  afterEach(() => {
    child?.kill("SIGKILL");
    for (const socket of sockets) socket.destroy();
  });

  it("a machine that accepts no connection ends with dial_timeout, and nothing was sent", async () => {
    const server = spawn(process.execPath, ["-e", DEAF_SERVER], { stdio: ["ignore", "pipe", "inherit"] });
    child = server;
    let output = "";
    server.stdout.on("data", (part: Buffer) => {
      output += part.toString();
    });
    const port = Number(await waitFor(() => output !== "" && output));
    await new Promise((resolve) => setTimeout(resolve, 200));
    // Fills the backlog: further handshakes get no answer.
    let connected = 0;
    for (let place = 0; place < 8; place++) {
      const socket = connect(port, "127.0.0.1", () => connected++);
      socket.on("error", () => undefined);
      sockets.push(socket);
    }
    await waitFor(() => connected > 0);
    await new Promise((resolve) => setTimeout(resolve, 200));
    expect(connected).toBeLessThan(8);

    const upstream = new UndiciUpstream();
    const told: (UpstreamFailure | "other")[] = [];
    upstream.open(
      { url: `http://127.0.0.1:${port}/`, method: "POST", headers: {}, body: null, dialTimeoutMs: 300 },
      {
        onHeaders: () => void told.push("other"),
        onData: () => true,
        onEnd: () => void told.push("other"),
        onFailure: (failure) => void told.push(failure),
      },
    );
    await waitFor(() => told.length > 0);
    expect(told).toEqual(["dial_timeout"]);
    await upstream.close();
  });
});
