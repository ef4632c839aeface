import { existsSync, mkdirSync, readFileSync, renameSync, writeFileSync } from "node:fs";
import path from "node:path";
import { z } from "zod";
import { GgufWriter } from "../../support/gguf-writer.ts";

/** A Llama of real size: 12 blocks of 768, 85 million weights. */
export const RANDOM_85M = { width: 768, layers: 12, heads: 12, feedForward: 2_048, contextLength: 1_024 } as const;

const SEED = 20_250_801;
const CONTROL_TOKENS = new Set(["<|endoftext|>", "<|im_start|>", "<|im_end|>"]);
const TEMPLATE =
  "{% for message in messages %}{{ '<|im_start|>' + message['role'] + '\n' + message['content'] + '<|im_end|>' + '\n' }}" +
  "{% endfor %}{% if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %}";

const vocabularySchema = z.object({
  tokens: z.array(z.string()),
  merges: z.array(z.tuple([z.string(), z.string()])),
});
type Vocabulary = z.infer<typeof vocabularySchema>;

/** The file of the random model in q8_0, written on the first call. The same bytes on every machine. */
export function randomModel85m(folder: string, vocabularyFile: string): string {
  const file = path.join(folder, "random-85m-words.q8_0.gguf");
  if (existsSync(file)) return file;
  const vocabulary = vocabularySchema.parse(JSON.parse(readFileSync(vocabularyFile, "utf8")));
  mkdirSync(folder, { recursive: true });
  // A run that is broken off must not leave half a model.
  writeFileSync(`${file}.part`, modelBytes(vocabulary));
  renameSync(`${file}.part`, file);
  return file;
}

function modelBytes(vocabulary: Vocabulary): Buffer {
  const file = new GgufWriter();
  writeHeader(file, vocabulary);
  const next = gaussian(SEED);
  const matrix = (name: string, inputs: number, outputs: number) => {
    const scale = 1 / Math.sqrt(inputs);
    const values = Float32Array.from({ length: inputs * outputs }, () => scale * next());
    file.tensorQ8(`${name}.weight`, [inputs, outputs], values);
  };
  const norm = (name: string) => file.tensor(`${name}.weight`, [width], new Float32Array(width).fill(1));
  const { width, layers, feedForward } = RANDOM_85M;
  file.tensorQ8("token_embd.weight", [width, vocabulary.tokens.length], embeddings(vocabulary.tokens, next));
  norm("output_norm");
  for (let layer = 0; layer < layers; layer++) {
    const block = `blk.${layer}`;
    norm(`${block}.attn_norm`);
    norm(`${block}.ffn_norm`);
    for (const part of ["attn_q", "attn_k", "attn_v", "attn_output"]) matrix(`${block}.${part}`, width, width);
    for (const part of ["ffn_gate", "ffn_up"]) matrix(`${block}.${part}`, width, feedForward);
    matrix(`${block}.ffn_down`, feedForward, width);
  }
  return file.toBytes();
}

/**
 * The embeddings are the output matrix too. Tokens that are no words, single bytes and control tokens, have zeros, so
 * that they are never drawn: bytes alone are no text, and llama-server ends an answer with an error there.
 */
function embeddings(tokens: readonly string[], next: () => number): Float32Array {
  const { width } = RANDOM_85M;
  const scale = 1 / Math.sqrt(width);
  const values = new Float32Array(tokens.length * width);
  for (const [row, token] of tokens.entries()) {
    if (token.length === 1 || CONTROL_TOKENS.has(token)) continue;
    for (let i = 0; i < width; i++) values[row * width + i] = scale * next();
  }
  return values;
}

function writeHeader(file: GgufWriter, { tokens, merges }: Vocabulary): void {
  const { width, layers, heads, feedForward, contextLength } = RANDOM_85M;
  const normal = 1;
  const control = 3;
  file
    .text("general.architecture", "llama")
    .text("general.name", "random 85M")
    .uint32("llama.context_length", contextLength)
    .uint32("llama.embedding_length", width)
    .uint32("llama.block_count", layers)
    .uint32("llama.feed_forward_length", feedForward)
    .uint32("llama.attention.head_count", heads)
    .uint32("llama.attention.head_count_kv", heads)
    .float32("llama.attention.layer_norm_rms_epsilon", 1e-5)
    .uint32("llama.rope.dimension_count", width / heads)
    .uint32("llama.vocab_size", tokens.length)
    .text("tokenizer.ggml.model", "gpt2")
    .text("tokenizer.ggml.pre", "gpt-2")
    .texts("tokenizer.ggml.tokens", tokens)
    .int32s(
      "tokenizer.ggml.token_type",
      tokens.map((token) => (CONTROL_TOKENS.has(token) ? control : normal)),
    )
    .texts(
      "tokenizer.ggml.merges",
      merges.map((pair) => pair.join(" ")),
    )
    .uint32("tokenizer.ggml.bos_token_id", tokens.indexOf("<|endoftext|>"))
    .uint32("tokenizer.ggml.eos_token_id", tokens.indexOf("<|im_end|>"))
    .bool("tokenizer.ggml.add_bos_token", false)
    .text("tokenizer.chat_template", TEMPLATE);
}

/** Sums of uniform numbers, close enough to normal ones: mean 0, variance 1. */
function gaussian(seed: number): () => number {
  let state = seed >>> 0;
  const uniform = () => {
    state ^= state << 13;
    state ^= state >>> 17;
    state ^= state << 5;
    return (state >>> 0) / 2 ** 32;
  };
  return () => (uniform() + uniform() + uniform() + uniform() - 2) * Math.sqrt(3);
}
