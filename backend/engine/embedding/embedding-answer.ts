import type { EmbeddingResponse } from "../../../shared/openai/embeddings.ts";

/** The wire form of vectors: numbers, or little-endian f32 in base64. */
export function embeddingAnswer(
  model: string,
  vectors: readonly Float32Array[],
  format: "float" | "base64",
  promptTokens: number,
): EmbeddingResponse {
  return {
    object: "list",
    model,
    data: vectors.map((vector, index) => ({
      object: "embedding",
      index,
      embedding: format === "float" ? Array.from(vector) : base64Of(vector),
    })),
    usage: { prompt_tokens: promptTokens, total_tokens: promptTokens },
  };
}

function base64Of(vector: Float32Array): string {
  const bytes = Buffer.alloc(vector.length * 4);
  vector.forEach((value, place) => bytes.writeFloatLE(value, place * 4));
  return bytes.toString("base64");
}
