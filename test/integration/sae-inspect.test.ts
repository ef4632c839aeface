import { spawnSync } from "node:child_process";
import { cpSync, symlinkSync, writeFileSync } from "node:fs";
import path from "node:path";
import { describe, expect, it } from "vitest";
import { filesFolder } from "../support/safetensors-fixture.ts";
import { REPOSITORY } from "../support/source-tree.ts";

const BACKEND = path.join(REPOSITORY, "dist/backend/main.js");
const MODEL = path.join(REPOSITORY, "backend/demo/demo-storyteller-1m.q8_0.gguf");
const SAE = path.join(REPOSITORY, "backend/demo/demo-l1");

function inspect(...args: string[]) {
  const { status, stdout, stderr } = spawnSync(process.execPath, [BACKEND, "sae", "inspect", ...args], {
    encoding: "utf8",
  });
  return { status, stdout, stderr };
}

describe("steerage-backend sae inspect", () => {
  it("prints one JSON object for a prompt", () => {
    const { status, stdout } = inspect(MODEL, SAE, "--prompt", "The sailor saw the sea.", "--activations", "--json");
    expect(status).toBe(0);
    const found: unknown = JSON.parse(stdout);
    expect(found).toEqual({
      format: "saelens",
      architecture: "jumprelu",
      d_in: 128,
      d_sae: 512,
      hook_point: "blocks.1.hook_resid_post",
      layer: 1,
      explained_variance: expect.any(Number),
      l0: expect.any(Number),
      dead: expect.any(Number),
      fits: true,
      activations: { positions: expect.any(Array) },
    });
  });

  it("measures a file of text and tells people", () => {
    const folder = filesFolder({ "text.txt": "The sailor saw the sea. ".repeat(40) });
    const { status, stdout } = inspect(MODEL, SAE, "--text", path.join(folder, "text.txt"), "--layer", "3");
    expect(status).toBe(0);
    expect(stdout).toMatch(/^fits +false$/m);
    expect(stdout).toMatch(/^layer +3$/m);
  });

  it("ends with 2 and one line for what it refuses", () => {
    const broken = filesFolder({ "cfg.json": "{}", "sae_weights.safetensors": "short" });
    const empty = filesFolder({ "model.gguf": "" });
    writeFileSync(path.join(empty, "ae.pt"), Buffer.from([0x80, 0x02, 0x7d]));
    for (const [args, named] of [
      [[MODEL, broken], "too short"],
      [[MODEL, empty], "pickle"],
      [[MODEL, path.join(empty, "nowhere")], "does not exist"],
      [[path.join(empty, "model.gguf"), SAE], "model.gguf"],
      [[path.join(empty, "missing.gguf"), SAE], "missing.gguf"],
      [[MODEL, SAE, "--layer", "9"], "layers 0 to 3"],
      [[MODEL, SAE, "--layer", "x"], "block number"],
      [[MODEL, SAE, "--activations"], "--prompt"],
      [[MODEL, SAE, "--text", path.join(empty, "none.txt")], "none.txt"],
      [[MODEL, SAE, "--reference", path.join(empty, "none.json")], "--reference needs"],
      [[MODEL, SAE, "--prompt", "a", "--reference", path.join(SAE, "cfg.json")], "sae inspect --activations"],
      [[MODEL, SAE, "--text", "a", "--prompt", "b"], "--prompt"],
      [[MODEL], "sae_dir"],
    ] as const) {
      const { status, stdout, stderr } = inspect(...args);
      expect({ args, status, stdout }).toEqual({ args, status: 2, stdout: "" });
      expect(stderr).toContain(named);
      expect(stderr.trimEnd().split("\n")).toHaveLength(1);
    }
  });

  it("tells in one line that the native core is not built", () => {
    const folder = filesFolder({});
    for (const part of ["dist/backend", "dist/shared", "package.json"]) {
      cpSync(path.join(REPOSITORY, part), path.join(folder, part), { recursive: true });
    }
    symlinkSync(path.join(REPOSITORY, "node_modules"), path.join(folder, "node_modules"));
    const program = path.join(folder, "dist/backend/main.js");
    expect(spawnSync(process.execPath, [program, "sae", "inspect", MODEL, SAE], { encoding: "utf8" })).toMatchObject({
      status: 2,
      stdout: "",
      stderr: "steerage-backend: the native core is not built: run `node scripts/build-native.mjs`\n",
    });
  });
});
