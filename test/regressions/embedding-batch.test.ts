// Root cause: inputs that were computed in one batch went through other kernels than an input alone, so that a vector
// depended on its company by up to 2e-3.
import { expect, it } from "vitest";
import { z } from "zod";
import { embeddingResponseSchema } from "../../shared/openai/embeddings.ts";
import { openEngine } from "../support/engine-harness.ts";
import { DEMO_Q8, nativeAddon } from "../support/native-harness.ts";

it("an embedding on CPU does not depend on what is asked beside it", async () => {
  const engine = await openEngine(await nativeAddon(), { model: "demo", model_path: DEMO_Q8, max_pending: 8 });
  try {
    const embed = async (input: readonly string[]) => {
      const answer = await engine.post("/v1/embeddings", { model: "demo", input, encoding_format: "float" });
      return embeddingResponseSchema
        .parse(await answer.json())
        .data.map(({ embedding }) => z.array(z.number()).parse(embedding));
    };
    const texts = Array.from({ length: 32 }, (_, i) => `story ${i} about the sea${" and the snow".repeat(i % 7)}`);
    const batches = Array.from({ length: 4 }, (_, batch) => texts.slice(batch * 8, batch * 8 + 8));
    const together = (await Promise.all(batches.map(embed))).flat();
    let furthest = 0;
    for (const [place, text] of texts.entries()) {
      const [alone = []] = await embed([text]);
      for (const [at, value] of alone.entries())
        furthest = Math.max(furthest, Math.abs(value - Number(together[place]?.[at])));
    }
    expect(furthest).toBeLessThan(1e-4);
  } finally {
    await engine.stop();
  }
});
