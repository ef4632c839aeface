import { spawnSync } from "node:child_process";
import path from "node:path";
import { describe, expect, it } from "vitest";

const PROGRAM = path.join(import.meta.dirname, "../../dist/backend/main.js");

describe("steerage-backend", () => {
  it.each([
    [["--bogus"], "unknown option '--bogus'"],
    [["serv"], "unknown command 'serv' (Did you mean serve?)"],
    [["serve"], "required option '--config <file>' not specified"],
    [["sae", "inspct"], "unknown command 'inspct' (Did you mean inspect?)"],
    [["sae", "inspect"], "missing required argument 'model.gguf'"],
  ])("tells what is wrong with its command line in one line of its own name: %j", (words, said) => {
    const { status, stdout, stderr } = spawnSync(process.execPath, [PROGRAM, ...words], { encoding: "utf8" });
    expect([status, stdout, stderr]).toEqual([2, "", `steerage-backend: ${said}; see --help\n`]);
  });
});
