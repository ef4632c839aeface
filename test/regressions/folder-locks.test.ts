// Root cause: a second host had no lock and removed the first one's folder of engine sockets; and the edge's lock took a
// killed process that its parent had not collected for one that runs.
import { spawn, type ChildProcess } from "node:child_process";
import { once } from "node:events";
import { readFileSync, writeFileSync } from "node:fs";
import path from "node:path";
import { afterEach, beforeEach, describe, expect, it } from "vitest";
import { lockFolder as lockForHost } from "../../backend/host/folder-lock.ts";
import { lockFolder as lockForEdge } from "../../edge/node/folder-lock.ts";
import { FakeEdge } from "../support/fake-edge.ts";
import { HostProcess, until } from "../support/host-process.ts";
import { temporaryFolder } from "../support/temporary-folder.ts";

const statusOf = (pid: number): string[] =>
  readFileSync(`/proc/${pid}/stat`, "utf8")
    .replace(/^.*\) /, "")
    .split(" ");
const startTimeOf = (pid: number): string => statusOf(pid)[19] ?? "";

describe.each([
  ["an edge", lockForEdge],
  ["a host", lockForHost],
])("the folder lock of %s", (_whose, lockFolder) => {
  let folder: string;
  let remove: () => void;
  let parent: ChildProcess | null = null;
  const lockOf = (text: string): void => writeFileSync(path.join(folder, "lock"), text);
  beforeEach(() => {
    ({ folder, remove } = temporaryFolder());
  });
  afterEach(() => {
    parent?.kill("SIGKILL");
    parent = null;
    remove();
  });

  /** A process that was killed and that nobody collects. */
  async function zombie(): Promise<{ readonly pid: number; readonly startTime: string }> {
    const child = spawn("sh", ["-c", "sleep 600 & echo $!; exec sleep 600"], { stdio: ["ignore", "pipe", "inherit"] });
    parent = child;
    const [text]: unknown[] = await once(child.stdout, "data");
    const pid = Number(String(text));
    const startTime = startTimeOf(pid);
    await until("the shell became one that collects nobody", () =>
      readFileSync(`/proc/${child.pid}/comm`, "utf8").startsWith("sleep"),
    );
    process.kill(pid, "SIGKILL");
    await until("it is dead", () => statusOf(pid)[0] === "Z");
    return { pid, startTime };
  }

  it("is not held by a killed process that was not collected", async () => {
    const { pid, startTime } = await zombie();
    lockOf(`${pid} ${startTime}`);
    const unlock = await lockFolder(folder);
    expect(readFileSync(path.join(folder, "lock"), "utf8")).toContain(String(process.pid));
    unlock();
  });

  it("is not held by another process that got the number of a dead one", async () => {
    lockOf(`${process.ppid} ${Number(startTimeOf(process.ppid)) - 1}`);
    const unlock = await lockFolder(folder);
    expect(readFileSync(path.join(folder, "lock"), "utf8")).toBe(`${process.pid} ${startTimeOf(process.pid)}`);
    unlock();
  });

  it("is held by a process that runs, which is named, and is free when that lets go", async () => {
    lockOf(`${process.ppid} ${startTimeOf(process.ppid)}`);
    await expect(lockFolder(folder)).rejects.toThrow(`${folder} is used by another process (${process.ppid})`);
    lockOf("");
    const unlock = await lockFolder(folder);
    await expect(lockFolder(folder)).rejects.toThrow(String(process.pid));
    unlock();
    (await lockFolder(folder))();
  });
});

describe("a second host on a folder in use", () => {
  it("ends with one line and leaves the first one working", async () => {
    const edge = await FakeEdge.start({ host: "gpu-1" });
    const host = await HostProcess.start(edge);
    try {
      await until("a replica is ready", () => edge.lastReport?.replicas[0]?.state === "ready");
      const second = await HostProcess.beside(host, { listen: "127.0.0.1:0" });
      expect(second.code).toBe(2);
      expect(second.stderr).toMatch(
        new RegExp(`^steerage-backend: the folder \\S+ is used by another process \\(${host.pid}\\)\\.\n$`),
      );
      const body = JSON.stringify({ model: "sim", messages: [{ role: "user", content: "hello" }] });
      expect((await host.request(await edge.sign({ body }), body)).status).toBe(200);
    } finally {
      await host.stop();
      await edge.stop();
    }
  });
});
