import { mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import path from "node:path";
import { afterAll, describe, expect, it } from "vitest";
import { openEngine } from "../support/engine-harness.ts";
import { DEMO_Q8, nativeAddon } from "../support/native-harness.ts";
import { randomModel } from "../support/random-model.ts";

const folder = mkdtempSync(path.join(tmpdir(), "steerage-speculation-"));
afterAll(() => rmSync(folder, { recursive: true }));

const fixture = (architecture: "llama" | "mamba"): string => {
  const file = path.join(folder, `${architecture}.gguf`);
  writeFileSync(file, randomModel(architecture, 1));
  return file;
};

describe("an engine that is to guess tokens", () => {
  it("does not start with a draft model that has other tokens, and says which", async () => {
    const speculation = { num_tokens: 5, model_path: fixture("llama") };
    await expect(openEngine(await nativeAddon(), { model_path: DEMO_Q8, speculation })).rejects.toMatchObject({
      code: "model_unsupported",
      message: expect.stringMatching(/^the draft model has another vocabulary than the model: .*258 tokens there/u),
    });
  });

  it("does not start with a recurrent model, which serves without guessing", async () => {
    const model_path = fixture("mamba");
    await expect(openEngine(await nativeAddon(), { model_path, speculation: { num_tokens: 5 } })).rejects.toMatchObject(
      {
        code: "model_unsupported",
        message: expect.stringContaining("the memory of this model does not allow: it is recurrent"),
      },
    );
    const engine = await openEngine(await nativeAddon(), { model_path });
    expect((await engine.get("/health")).status).toBe(200);
    await engine.stop();
  });

  it("tells what its draft model computed, and gives it back when it stops", async () => {
    const speculation = { num_tokens: 3, model_path: DEMO_Q8 };
    const engine = await openEngine(await nativeAddon(), { model_path: DEMO_Q8, speculation });
    const body = { model: "m", prompt: "Once upon a time", max_tokens: 40, temperature: 0, ignore_eos: true };
    expect((await engine.post("/v1/completions", body)).status).toBe(200);
    const guessed = () =>
      engine.events.some((event) => event.type === "load" && (event.speculation?.draft_model ?? 0) > 0);
    while (!guessed()) await new Promise((resolve) => setImmediate(resolve));
    // Refused by the native core, and so rejected here, while anything still uses one of the two models.
    await engine.stop();
  });
});
