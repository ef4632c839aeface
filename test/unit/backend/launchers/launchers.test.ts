import { mkdirSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import path from "node:path";
import { afterEach, beforeEach, describe, expect, it } from "vitest";
import { readHostConfig } from "../../../../backend/config.ts";
import { launcherOf } from "../../../../backend/launchers/launcher-of.ts";
import { NO_WISHES, type OperatorWishes } from "../../../../backend/ports/operator-wishes.ts";
import { engineOptionsSchema } from "../../../../backend/ports/engine-options.ts";

const PROGRAM = "/opt/steerage/main.js";

const header = (magic: string, version: number): Buffer => {
  const bytes = Buffer.alloc(64);
  bytes.write(magic, "latin1");
  bytes.writeUInt32LE(version, 4);
  return bytes;
};

describe("launchers", () => {
  let folder: string;
  beforeEach(() => {
    folder = mkdtempSync(path.join(tmpdir(), "steerage-launch-"));
  });
  afterEach(() => rmSync(folder, { recursive: true }));

  let wishes: OperatorWishes = NO_WISHES;
  beforeEach(() => {
    wishes = NO_WISHES;
  });
  const launcher = (model: Record<string, unknown>, config: Record<string, unknown> = {}) => {
    const read = readHostConfig({ models: [model], ...config }, {}, path.join(folder, "host.yaml"));
    const [first] = read.models;
    if (first === undefined) throw new Error("no model");
    return launcherOf(first, read, { program: PROGRAM, wishes: () => Promise.resolve(wishes) });
  };

  it("writes the native engine's options beside its socket: the model's own, else the host's defaults", async () => {
    const sae = { id: "l1", source: "l1", layer: 3 };
    const plan = await launcher(
      { name: "demo", source: "m.gguf", saes: [sae], slots: 3 },
      { context_length: 512, kv_cache_type: "f16", kv_layout: "streams" },
    ).prepare(path.join(folder, "e0.sock"));
    expect([plan.command, plan.arguments.slice(0, 2)]).toEqual([process.execPath, [PROGRAM, "engine"]]);
    const file = plan.arguments.at(-1) ?? "";
    expect(engineOptionsSchema.parse(JSON.parse(readFileSync(file, "utf8")))).toMatchObject({
      model: "demo",
      socket_path: path.join(folder, "e0.sock"),
      model_path: path.join(folder, "m.gguf"),
      saes: [{ id: "l1", path: path.join(folder, "l1"), layer: 3 }],
      slots: 3,
      max_pending: 10,
      context_length: 512,
      kv_cache_type: "f16",
      kv_layout: "streams",
      log_format: "json",
    });
  });

  it("lets an engine guess tokens as its model says, else as the host does, else not at all", async () => {
    const speculationOf = async (model: Record<string, unknown>, config: Record<string, unknown>) => {
      const plan = await launcher({ name: "demo", source: "m.gguf", ...model }, config).prepare(
        path.join(folder, "e0.sock"),
      );
      return engineOptionsSchema.parse(JSON.parse(readFileSync(plan.arguments.at(-1) ?? "", "utf8"))).speculation;
    };
    const lookup = { speculative_method: "prompt_lookup" };
    expect(await speculationOf({}, {})).toBeNull();
    expect(await speculationOf({}, { ...lookup, speculative_num_tokens: 7 })).toEqual({
      num_tokens: 7,
      model_path: null,
    });
    expect(await speculationOf({ speculative_method: "off" }, lookup)).toBeNull();
    const three = { num_tokens: 3, model_path: null };
    expect(await speculationOf({ ...lookup, speculative_num_tokens: 3 }, {})).toEqual(three);
    const draft = { num_tokens: 5, model_path: path.join(folder, "small.gguf") };
    expect(await speculationOf({ speculative_model: "small.gguf" }, {})).toEqual(draft);
    expect(await speculationOf({}, { speculative_model: "small.gguf" })).toEqual(draft);
    expect(await speculationOf({ speculative_model: "small.gguf" }, lookup)).toMatchObject({ model_path: null });
    expect(await speculationOf({ speculative_method: "off" }, { speculative_model: "small.gguf" })).toBeNull();
  });

  it("finds what stands against a draft model too", async () => {
    writeFileSync(path.join(folder, "m.gguf"), header("GGUF", 3));
    const drafted = launcher({ name: "demo", source: "m.gguf", speculative_model: "small.gguf" });
    expect(await drafted.findFault()).toBe(`${path.join(folder, "small.gguf")}: does not exist`);
    writeFileSync(path.join(folder, "small.gguf"), header("GGUF", 3));
    expect(await drafted.findFault()).toBeNull();
  });

  it("finds what stands against a native start, by file and reason", async () => {
    const file = path.join(folder, "m.gguf");
    const fault = async (): Promise<string | null> => launcher({ name: "demo", source: "m.gguf" }).findFault();
    expect(await fault()).toBe(`${file}: does not exist`);
    writeFileSync(file, "");
    expect(await fault()).toBe(`${file}: truncated, it ends inside its header`);
    writeFileSync(file, header("GGML", 3));
    expect(await fault()).toBe(`${file}: not a GGUF file`);
    writeFileSync(file, header("GGUF", 99));
    expect(await fault()).toBe(`${file}: GGUF version 99 is not supported`);
    writeFileSync(file, header("GGUF", 3));
    expect(await fault()).toBeNull();
    const withSae = launcher({ name: "demo", source: "m.gguf", saes: [{ id: "l1", source: "l1" }] });
    expect(await withSae.findFault()).toBe(`${path.join(folder, "l1")}: does not exist`);
    expect(await launcher({ name: "demo", source: "." }).findFault()).toBe(`${folder}: is a folder, not a file`);
  });

  it("begins with what operators have changed by then, and needs only what is configured", async () => {
    writeFileSync(path.join(folder, "m.gguf"), header("GGUF", 3));
    mkdirSync(path.join(folder, "l2"));
    const saes = ["l1", "l2", "l3"].map((id) => ({ id, source: id }));
    const native = launcher({ name: "demo", source: "m.gguf", saes }, { monitoring: { context_text: true } });
    expect(await native.findFault()).toBe(`${path.join(folder, "l1")}: does not exist`);
    const attached = ["l3", "l4"].map((id) => ({
      id,
      path: `/gone/${id}`,
      layer: null,
      calibration_text: null,
      serve_anyway: false,
      required: false,
    }));
    const list = { id: "w", sae_id: "l2", features: [1], threshold: 2, context_tokens: 3 };
    const watched = { ...list, read_point: "pre_steering" } as const;
    wishes = { attached, detached: ["l1"], watch_lists: [watched] };
    expect(await native.findFault()).toBeNull();
    const plan = await native.prepare(path.join(folder, "e.sock"));
    const options = engineOptionsSchema.parse(JSON.parse(readFileSync(plan.arguments.at(-1) ?? "", "utf8")));
    expect(options.saes.map(({ id, path: at, required }) => [id, at, required])).toEqual([
      ["l2", path.join(folder, "l2"), true],
      ["l3", "/gone/l3", false],
      ["l4", "/gone/l4", false],
    ]);
    expect(options).toMatchObject({
      watch_lists: [watched],
      monitoring: { context_text: true, context_tokens: 16, history: 1_000, max_events_per_request: 20 },
    });
  });

  it("gives the scripted engine its script as flags", async () => {
    const sim = { tokens_per_second: 50, hang: true, fail_rate: 0 };
    const plan = await launcher({ name: "sim", engine: "sim", sim }).prepare("/run/e.sock");
    expect(plan.arguments).toEqual([
      PROGRAM,
      "sim",
      "--socket=/run/e.sock",
      "--model=sim",
      "--slots=8",
      "--max-pending=10",
      "--context-length=32768",
      "--tokens-per-second",
      "50",
      "--hang",
      "--fail-rate",
      "0",
    ]);
  });
});
