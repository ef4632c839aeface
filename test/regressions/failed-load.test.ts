// Root cause of this case: a native library that finds no memory does not throw but aborts, so whoever loads in the
// process that serves, or starts again at once, serves nothing at all.
import { mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import path from "node:path";
import { afterEach, describe, expect, it } from "vitest";
import { simLauncher } from "../../backend/launchers/sim.ts";
import type { Launcher } from "../../backend/supervisor/launcher.ts";
import { EngineSupervisor } from "../../backend/supervisor/engine-supervisor.ts";
import { systemClock } from "../../backend/system-clock.ts";
import { silentLogger } from "../support/dispatch-fakes.ts";
import { REPOSITORY } from "../support/source-tree.ts";
import { until } from "../support/stack.ts";

const runFolder = mkdtempSync(path.join(tmpdir(), "steerage-load-"));
const running: EngineSupervisor[] = [];
afterEach(async () => {
  await Promise.all(running.splice(0).map((supervisor) => supervisor.stop()));
  rmSync(runFolder, { recursive: true, force: true });
});

function supervised(socketName: string, launcher: Launcher) {
  const phases: string[] = [];
  const supervisor = new EngineSupervisor({
    launcher,
    runFolder,
    socketName,
    clock: systemClock,
    logger: silentLogger,
    settings: { startupTimeoutMs: 30_000, restartBaseMs: 20, restartMaxMs: 300_000 },
    listener: {
      onChange: () => phases.push(supervisor.state.phase),
      onEvent: () => undefined,
      onInstanceEnd: () => undefined,
    },
  });
  running.push(supervisor);
  supervisor.start();
  return { supervisor, phases };
}

describe("C073: a loader that aborts", () => {
  it("is a failed replica with its reason, started ever later and never told ready, beside an engine that serves on", async () => {
    const sim = supervised(
      "serving",
      simLauncher({
        model: "sim",
        slots: 1,
        maxPending: 1,
        contextLength: 1_024,
        script: {},
        program: path.join(REPOSITORY, "dist/backend/main.js"),
      }),
    );
    await until("the other model serves", () => sim.supervisor.state.phase === "ready");
    const before = sim.supervisor.current;

    let starts = 0;
    const aborting = supervised("aborting", {
      engine: "native",
      findFault: () => Promise.resolve(null),
      prepare: () => {
        starts += 1;
        return Promise.resolve({ command: process.execPath, arguments: ["-e", "process.abort()"], environment: {} });
      },
    });
    await until("it is called failed", () => aborting.supervisor.state.phase === "failed");
    expect(starts).toBe(3);
    expect(aborting.supervisor.state).toMatchObject({ failures: 3, reason: expect.stringContaining("SIGABRT") });
    expect(aborting.supervisor.current).toBeNull();
    const first = aborting.supervisor.state.retryAtMs ?? 0;
    await until("it was tried a fourth time", () => aborting.supervisor.state.failures === 4);
    // Two starts later the wait has doubled; the end itself came after the one before.
    expect((aborting.supervisor.state.retryAtMs ?? 0) - first).toBeGreaterThanOrEqual(160);
    expect(aborting.phases).not.toContain("ready");

    expect(sim.supervisor.current).toEqual(before);
    expect(sim.phases.at(-1)).toBe("ready");
  });
});
