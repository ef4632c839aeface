import { mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { afterAll, beforeAll, describe, expect, it } from "vitest";
import type { NativeModel } from "../../backend/native/binding.ts";
import { codeOf, NativeSession, openModel } from "../support/native-harness.ts";
import { FIXTURE_SHAPE, randomModel } from "../support/random-model.ts";

describe("a model whose table of positions ends", () => {
  const folder = mkdtempSync(join(tmpdir(), "steerage-positions-"));
  const positions = 32;
  let model: NativeModel;
  let session: NativeSession;
  beforeAll(async () => {
    const path = join(folder, "gpt2.gguf");
    writeFileSync(path, randomModel("gpt2", 3, { ...FIXTURE_SHAPE, contextLength: positions }));
    model = await openModel(path);
    session = await NativeSession.open(model);
  });
  afterAll(async () => {
    await session.context.dispose();
    await model.dispose();
    rmSync(folder, { recursive: true });
  });

  it("ends an answer at the last position instead of the process", async () => {
    const tokens = new Int32Array(20).fill(65);
    const outcome = await session.run({ tokens, maxTokens: 1000, ignoreEndOfGeneration: true });
    expect(outcome.finished).toMatchObject({ reason: "length", computedCompletionTokens: positions - 20 + 1 });
  });

  it("refuses prompts and embedders that are longer", async () => {
    const tokens = new Int32Array(positions + 1).fill(65);
    expect(await codeOf(() => session.start({ tokens }))).toBe("invalid_argument");
    const options = { contextLength: positions + 1, threads: 1, pooling: "mean" as const };
    expect(await codeOf(() => model.createEmbedder(options))).toBe("invalid_argument");
  });
});
