import { mkdtempSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { afterAll, beforeAll, describe, expect, it } from "vitest";
import type { NativeModel } from "../../backend/native/binding.ts";
import { codeOf, DEMO_Q8, openModel } from "../support/native-harness.ts";
import { GgufWriter } from "../support/gguf-writer.ts";

describe("loading a model file", () => {
  const folder = mkdtempSync(join(tmpdir(), "steerage-native-"));
  const write = (name: string, bytes: Uint8Array): string => {
    const path = join(folder, name);
    writeFileSync(path, bytes);
    return path;
  };
  afterAll(() => {
    rmSync(folder, { recursive: true });
  });

  it("says that a missing file is missing", async () => {
    expect(await codeOf(() => openModel(join(folder, "nowhere.gguf")))).toBe("model_file_missing");
  });

  it.each([
    ["an empty file", new Uint8Array()],
    ["text", Buffer.from("this is not a model, but it is longer than four bytes")],
    ["the start of a header", readFileSync(DEMO_Q8).subarray(0, 4096)],
    ["a file without its last tensor bytes", readFileSync(DEMO_Q8).subarray(0, -4096)],
  ])("says that %s is no valid model file", async (name, bytes) => {
    expect(await codeOf(() => openModel(write(`${name.replaceAll(" ", "-")}.gguf`, bytes)))).toBe("model_file_invalid");
  });

  it("says that a folder is no valid model file", async () => {
    expect(await codeOf(() => openModel(folder))).toBe("model_file_invalid");
  });

  it("says that an architecture it does not know is unsupported", async () => {
    const file = new GgufWriter().text("general.architecture", "no-such-architecture");
    expect(await codeOf(() => openModel(write("unknown.gguf", file.toBytes())))).toBe("model_unsupported");
  });
});

describe("a loaded model", () => {
  let model: NativeModel;
  beforeAll(async () => {
    model = await openModel(DEMO_Q8);
  });
  afterAll(async () => {
    await model.dispose();
  });

  it("tells its shape and metadata", () => {
    expect(model.info).toMatchObject({
      architecture: "llama",
      layerCount: 4,
      embeddingWidth: 128,
      vocabularySize: 1024,
      trainingContextLength: 1024,
      slidingWindow: 0,
      recurrent: false,
      hybrid: false,
      parameterCount: 918_656,
    });
    expect(model.info.chatTemplate).toContain("<|im_start|>");
    expect(model.info.metadata["general.name"]).toBe("Demo Storyteller 1M");
    expect(model.info.metadata).not.toHaveProperty(["tokenizer.ggml.tokens"]);
  });

  it.each(["Once upon a time.", "naïve café 🚢 \u0000 日本", " leading and trailing  ", ""])(
    "gives back the bytes of %j from its tokens",
    (text) => {
      const tokens = model.tokenize(text, false, false);
      const bytes = Buffer.concat([...tokens].map((token) => Buffer.from(model.tokenBytes(token, false))));
      expect(bytes.toString("utf8")).toBe(text);
    },
  );

  it("cuts a character into tokens that are not text by themselves", () => {
    const tokens = model.tokenize("🚢", false, false);
    expect(tokens.length).toBeGreaterThan(1);
    expect(model.tokenBytes(tokens[0] ?? 0, false).length).toBeLessThan(4);
  });

  it("reads control tokens only when asked, and renders them only when asked", () => {
    const [control = -1, ...rest] = model.tokenize("<|im_start|>", false, true);
    expect(rest).toEqual([]);
    expect(model.isControl(control)).toBe(true);
    expect(model.tokenBytes(control, false).length).toBe(0);
    expect(Buffer.from(model.tokenBytes(control, true)).toString()).toBe("<|im_start|>");
    expect(model.tokenize("<|im_start|>", false, false).length).toBeGreaterThan(1);
  });

  it("knows its end-of-generation token", () => {
    expect(model.isEndOfGeneration(model.info.eosToken ?? -1)).toBe(true);
    expect(model.isEndOfGeneration(5)).toBe(false);
  });

  it("refuses tokens outside its vocabulary", () => {
    expect(() => model.tokenBytes(1024, false)).toThrow(expect.objectContaining({ code: "invalid_argument" }));
    expect(() => model.isControl(-1)).toThrow(expect.objectContaining({ code: "invalid_argument" }));
  });

  it("makes a grammar of a schema and refuses what cannot be one", () => {
    const grammar = model.grammarFromSchema('{"type":"object","properties":{"a":{"type":"integer"}},"required":["a"]}');
    expect(grammar).toContain("root ::=");
    expect(() => {
      model.checkGrammar(grammar, "root");
    }).not.toThrow();
    for (const broken of ["{", '{"type":"no-such-type"}', '{"$ref":"#/nowhere"}']) {
      expect(() => model.grammarFromSchema(broken)).toThrow(expect.objectContaining({ code: "grammar_invalid" }));
    }
    for (const broken of ["root ::= (", "other ::= [a-z]"]) {
      expect(() => {
        model.checkGrammar(broken, "root");
      }).toThrow(expect.objectContaining({ code: "grammar_invalid" }));
    }
  });
});
