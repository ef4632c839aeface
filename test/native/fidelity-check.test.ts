import { mkdtempSync, readdirSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { afterAll, beforeAll, describe, expect, it } from "vitest";
import { FidelityCheck } from "../../backend/inspect/fidelity-check.ts";
import { FidelityStore } from "../../backend/inspect/fidelity-store.ts";
import type { NativeModel } from "../../backend/native/binding.ts";
import { readSaeFolder } from "../../backend/sae/read-sae-folder.ts";
import { SaeFileError } from "../../backend/sae/sae-file-error.ts";
import { openEngine } from "../support/engine-harness.ts";
import { DEMO_Q8, nativeAddon, openModel, repositoryFile } from "../support/native-harness.ts";
import { keptLogger } from "../support/silent-logger.ts";

const SAE = repositoryFile("backend/demo/demo-l1");
const STORY =
  "Once upon a time there was an old sailor who lived by the sea. Every morning he walked down to the harbour, " +
  "looked at the waves and told the gulls about the storms of his youth. One day a small boat came in from the fog.";
const folder = mkdtempSync(join(tmpdir(), "steerage-fidelity-"));
const TEXT = join(folder, "story.txt");
writeFileSync(TEXT, STORY);

let model: NativeModel;
let contexts = 0;
beforeAll(async () => {
  const opened = await openModel(DEMO_Q8);
  model = new Proxy(opened, {
    get: (target, name) => {
      if (name === "createContext") contexts += 1;
      const value: unknown = Reflect.get(target, name);
      return typeof value === "function" ? value.bind(target) : value;
    },
  });
});
afterAll(() => model.dispose());

async function verdict(layer: number, over: object = {}, store = new FidelityStore(null)) {
  const files = await readSaeFolder(SAE);
  const check = new FidelityCheck({
    model,
    modelPath: DEMO_Q8,
    context: { threads: 1, flashAttention: true, kvType: "q8_0" },
    minExplainedVariance: 0.5,
    store,
    logger: keptLogger().logger,
  });
  const native = (await nativeAddon()).loadSae(files.tensors);
  const options = { id: "l1", path: SAE, layer, calibration_text: TEXT, serve_anyway: false, required: true, ...over };
  const found = await check.verdict({ options, files, native, layer });
  native.dispose();
  return found;
}

describe("an SAE before it is served", () => {
  it("passes where it explains the model, and is refused with the figures where it does not", async () => {
    const own = await verdict(1);
    expect(own.refusal).toBeNull();
    expect(own.fidelity?.explained_variance).toBeGreaterThan(0.8);
    const other = await verdict(3);
    expect(other.refusal).toMatch(/^it explains -\d\.\d{3} of the variance .* less than 0\.5$/);
  });

  it("is served anyway where the operator says so, with its figures", async () => {
    const found = await verdict(3, { serve_anyway: true });
    expect(found.refusal).toBeNull();
    expect(found.fidelity?.explained_variance).toBeLessThan(0);
  });

  it("is unmeasured without a text, and refused by name when a named text is missing", async () => {
    const bare = mkdtempSync(join(tmpdir(), "steerage-bare-"));
    expect(await verdict(3, { calibration_text: null, path: bare })).toEqual({ fidelity: null, refusal: null });
    writeFileSync(join(bare, "calibration.txt"), STORY);
    expect((await verdict(3, { calibration_text: null, path: bare })).refusal).not.toBeNull();
    await expect(verdict(1, { calibration_text: join(bare, "none.txt") })).rejects.toThrow(SaeFileError);
  });

  it("is measured once for the same model, SAE, layer and text", async () => {
    const kept = mkdtempSync(join(tmpdir(), "steerage-kept-"));
    const store = () => new FidelityStore(join(kept, "fidelity"));
    contexts = 0;
    const first = await verdict(1, {}, store());
    expect(await verdict(1, {}, store())).toEqual(first);
    expect(contexts).toBe(1);
    await verdict(2, {}, store());
    expect(contexts).toBe(2);
    for (const file of readdirSync(join(kept, "fidelity"))) writeFileSync(join(kept, "fidelity", file), "{");
    expect(await verdict(1, {}, store())).toEqual(first);
    expect(contexts).toBe(3);
  });
});

describe("an engine", () => {
  it("serves the SAE that fits, leaves out the one that does not, and says so", async () => {
    const engine = await openEngine(await nativeAddon(), {
      model_path: DEMO_Q8,
      saes: [
        { id: "fits", path: SAE, layer: null, calibration_text: TEXT },
        { id: "misplaced", path: SAE, layer: 3, calibration_text: TEXT },
        { id: "own-text", path: repositoryFile("backend/demo/demo-l2"), layer: null },
      ],
    });
    const ask = (sae: string) =>
      engine.post("/v1/completions", {
        model: "m",
        prompt: "Once",
        max_tokens: 2,
        steering: { sae_id: sae, features: [{ index: 1, strength: 5 }] },
      });
    expect((await ask("fits")).status).toBe(200);
    const refused = await ask("misplaced");
    expect(refused.status).toBe(400);
    expect(await refused.json()).toMatchObject({ error: { code: "sae_not_available" } });
    const ready = engine.events.find((event) => event.type === "ready");
    expect(ready).toMatchObject({
      saes: [
        { id: "fits", fidelity: { explained_variance: expect.any(Number) } },
        { id: "own-text", fidelity: { explained_variance: expect.any(Number) } },
      ],
      refused_saes: [{ id: "misplaced", reason: expect.stringContaining("less than 0.5") }],
    });
    await engine.stop();
  });
});
