import { spawnSync } from "node:child_process";
import { describe, expect, it } from "vitest";

const up = (...options: string[]): { status: number | null; stderr: string; stdout: string } =>
  spawnSync(process.execPath, ["scripts/up.mjs", ...options], { encoding: "utf8" });

describe("a command line that npm run up cannot use", () => {
  it.each([
    [["--port", "0"], "--port must be a port number from 1 to 65535, not '0'.\n"],
    [["--port", "8090"], "The four ports must differ from each other.\n"],
    [["--nonsense"], "Unknown option '--nonsense'. See 'npm run up -- --help'.\n"],
  ])("%j is one line and exit code 2", (options, line) => {
    expect(up(...options)).toMatchObject({ status: 2, stdout: "", stderr: line });
  });
});
