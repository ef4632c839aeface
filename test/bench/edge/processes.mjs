// Child processes of a bench: started, waited for, looked at through /proc, and ended whatever happens.
import { spawn, spawnSync } from "node:child_process";
import { existsSync, readdirSync, readFileSync } from "node:fs";
import { createServer } from "node:net";

const READY_TIMEOUT_MS = 20_000;

/** A port that was free a moment ago. */
export function freePort() {
  return new Promise((resolve, reject) => {
    const server = createServer().once("error", reject);
    server.listen(0, "127.0.0.1", () => {
      const { port } = server.address();
      server.close(() => resolve(port));
    });
  });
}

/** The first of these that can be run, or null. */
export function programOf(...names) {
  for (const name of names) {
    if (name.includes("/") ? existsSync(name) : spawnSync("which", [name]).status === 0) return name;
  }
  return null;
}

export class Children {
  #all = [];

  /** Starts a program and waits until `port` takes connections. What it says is shown only when it fails. */
  async start(command, args, { port, ...options }) {
    const child = spawn(command, args, { stdio: ["ignore", "pipe", "pipe"], ...options });
    this.#all.push(child);
    let said = "";
    const listen = (text) => (said = `${said}${text}`.slice(-2_000));
    child.stdout.on("data", listen);
    child.stderr.on("data", listen);
    child.once("error", listen);
    const end = performance.now() + READY_TIMEOUT_MS;
    while (!(await isOpen(port))) {
      if (child.exitCode !== null || performance.now() > end) throw new Error(`${command} does not run: ${said}`);
      await new Promise((resolve) => setTimeout(resolve, 50));
    }
    return child.pid;
  }

  async stop() {
    await Promise.all(
      this.#all.map(async (child) => {
        if (child.exitCode !== null || child.signalCode !== null) return;
        const gone = new Promise((resolve) => child.once("exit", resolve));
        child.kill("SIGTERM");
        const force = setTimeout(() => child.kill("SIGKILL"), 10_000);
        await gone;
        clearTimeout(force);
      }),
    );
  }
}

async function isOpen(port) {
  const answer = await fetch(`http://127.0.0.1:${port}/health`).catch(() => null);
  await answer?.body?.cancel();
  return answer !== null;
}

/** Memory in MiB: now, and the most there was. Null where there is no /proc. */
export function memoryOf(pid) {
  if (!existsSync(`/proc/${pid}/status`)) return null;
  const status = readFileSync(`/proc/${pid}/status`, "utf8");
  const mebibytes = (name) => Math.round(Number(new RegExp(`${name}:\\s+(\\d+)`).exec(status)?.[1] ?? NaN) / 1_024);
  return { now: mebibytes("VmRSS"), peak: mebibytes("VmHWM") };
}

/** Microseconds of processor time that a process has used, all threads; null where there is no /proc. */
export function processorUs(pid) {
  if (!existsSync(`/proc/${pid}/task`)) return null;
  let ticks = 0;
  for (const thread of readdirSync(`/proc/${pid}/task`)) {
    const stat = readFileSync(`/proc/${pid}/task/${thread}/stat`, "utf8");
    const fields = stat.slice(stat.lastIndexOf(")") + 2).split(" ");
    ticks += Number(fields[11]) + Number(fields[12]);
  }
  return ticks * 10_000;
}
