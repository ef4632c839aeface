import { GgufWriter } from "./gguf-writer.ts";

/** Shapes of the graph to cope with: plain, sliding window, biases, learned positions, a recurrent state. */
export type FixtureArchitecture = "llama" | "gemma2" | "qwen2" | "gpt2" | "mamba";

export interface FixtureShape {
  readonly layers: number;
  readonly width: number;
  readonly heads: number;
  readonly keyValueHeads: number;
  readonly feedForward: number;
  readonly contextLength: number;
  /** Sliding window in tokens, for gemma2. */
  readonly slidingWindow: number;
}

/** Of mamba: kernel of the convolution, width of the state and rank of the time step. */
const MAMBA = { kernel: 4, state: 8, rank: 4 } as const;

export const FIXTURE_SHAPE: FixtureShape = {
  layers: 3,
  width: 64,
  heads: 4,
  keyValueHeads: 2,
  feedForward: 96,
  contextLength: 512,
  slidingWindow: 8,
};

/** Tokens 0-255 are the bytes, then one merge, then the end of the text. */
export const FIXTURE_VOCABULARY_SIZE = 258;
export const FIXTURE_END_TOKEN = 257;

/** A GGUF model of random weights, the same bytes for the same seed. */
export function randomModel(architecture: FixtureArchitecture, seed: number, shape = FIXTURE_SHAPE): Buffer {
  const file = new GgufWriter();
  writeHeader(file, architecture, shape);
  writeVocabulary(file);
  new WeightWriter(file, seed, shape).write(architecture);
  return file.toBytes();
}

function writeHeader(file: GgufWriter, architecture: FixtureArchitecture, shape: FixtureShape): void {
  const headWidth = shape.width / shape.heads;
  file
    .text("general.architecture", architecture)
    .text("general.name", `random ${architecture}`)
    .uint32(`${architecture}.context_length`, shape.contextLength)
    .uint32(`${architecture}.embedding_length`, shape.width)
    .uint32(`${architecture}.block_count`, shape.layers)
    .uint32(`${architecture}.feed_forward_length`, shape.feedForward)
    .uint32(`${architecture}.attention.head_count`, shape.heads)
    .uint32(`${architecture}.vocab_size`, FIXTURE_VOCABULARY_SIZE);
  if (architecture === "gpt2") {
    file.float32("gpt2.attention.layer_norm_epsilon", 1e-5);
    return;
  }
  if (architecture === "mamba") {
    file
      .float32("mamba.attention.layer_norm_rms_epsilon", 1e-5)
      .uint32("mamba.ssm.conv_kernel", MAMBA.kernel)
      .uint32("mamba.ssm.inner_size", 2 * shape.width)
      .uint32("mamba.ssm.state_size", MAMBA.state)
      .uint32("mamba.ssm.time_step_rank", MAMBA.rank);
    return;
  }
  file
    .uint32(`${architecture}.attention.head_count_kv`, shape.keyValueHeads)
    .float32(`${architecture}.attention.layer_norm_rms_epsilon`, 1e-5)
    .uint32(`${architecture}.rope.dimension_count`, headWidth)
    .float32(`${architecture}.rope.freq_base`, 10_000);
  if (architecture === "gemma2") {
    file
      .uint32("gemma2.attention.key_length", headWidth)
      .uint32("gemma2.attention.value_length", headWidth)
      .uint32("gemma2.attention.sliding_window", shape.slidingWindow)
      .float32("gemma2.attn_logit_softcapping", 50)
      .float32("gemma2.final_logit_softcapping", 30);
  }
}

function writeVocabulary(file: GgufWriter): void {
  const bytes = byteTokens();
  const normal = 1;
  const control = 3;
  const merge: [string, string] = [bytes[101] ?? "", bytes[114] ?? ""];
  file
    .text("tokenizer.ggml.model", "gpt2")
    .text("tokenizer.ggml.pre", "gpt-2")
    .texts("tokenizer.ggml.tokens", [...bytes, merge.join(""), "<|end|>"])
    .int32s("tokenizer.ggml.token_type", [...bytes.map(() => normal), normal, control])
    .texts("tokenizer.ggml.merges", [merge.join(" ")])
    .uint32("tokenizer.ggml.eos_token_id", FIXTURE_END_TOKEN)
    .uint32("tokenizer.ggml.bos_token_id", FIXTURE_END_TOKEN)
    .bool("tokenizer.ggml.add_bos_token", false);
}

/** Byte-level BPE writes bytes that are no printable character as characters from 256 on. */
function byteTokens(): string[] {
  let next = 256;
  return Array.from({ length: 256 }, (_, byte) => String.fromCodePoint(isPrintable(byte) ? byte : next++));
}

function isPrintable(byte: number): boolean {
  return (byte >= 33 && byte <= 126) || (byte >= 161 && byte <= 172) || (byte >= 174 && byte <= 255);
}

class WeightWriter {
  readonly #file: GgufWriter;
  readonly #shape: FixtureShape;
  #state: number;

  constructor(file: GgufWriter, seed: number, shape: FixtureShape) {
    this.#file = file;
    this.#shape = shape;
    this.#state = seed >>> 0;
  }

  write(architecture: FixtureArchitecture): void {
    const { width, layers, contextLength } = this.#shape;
    this.#matrix("token_embd.weight", width, FIXTURE_VOCABULARY_SIZE);
    if (architecture === "gpt2") this.#matrix("position_embd.weight", width, contextLength);
    for (let layer = 0; layer < layers; layer++) {
      if (architecture === "gpt2") this.#fusedBlock(`blk.${layer}`);
      else if (architecture === "mamba") this.#mambaBlock(`blk.${layer}`);
      else this.#block(`blk.${layer}`, architecture);
    }
    this.#norm("output_norm", width);
    if (architecture === "gpt2") this.#bias("output_norm", width);
    else if (architecture !== "gemma2") this.#matrix("output.weight", width, FIXTURE_VOCABULARY_SIZE);
  }

  #block(name: string, architecture: FixtureArchitecture): void {
    const { width, heads, keyValueHeads, feedForward } = this.#shape;
    const keyValueWidth = (width / heads) * keyValueHeads;
    this.#norm(`${name}.attn_norm`, width);
    this.#matrix(`${name}.attn_q.weight`, width, width);
    this.#matrix(`${name}.attn_k.weight`, width, keyValueWidth);
    this.#matrix(`${name}.attn_v.weight`, width, keyValueWidth);
    this.#matrix(`${name}.attn_output.weight`, width, width);
    if (architecture === "qwen2") {
      this.#bias(`${name}.attn_q`, width);
      this.#bias(`${name}.attn_k`, keyValueWidth);
      this.#bias(`${name}.attn_v`, keyValueWidth);
    }
    if (architecture === "gemma2") {
      this.#norm(`${name}.post_attention_norm`, width);
      this.#norm(`${name}.post_ffw_norm`, width);
    }
    this.#norm(`${name}.ffn_norm`, width);
    this.#matrix(`${name}.ffn_gate.weight`, width, feedForward);
    this.#matrix(`${name}.ffn_up.weight`, width, feedForward);
    this.#matrix(`${name}.ffn_down.weight`, feedForward, width);
  }

  #fusedBlock(name: string): void {
    const { width, feedForward } = this.#shape;
    for (const norm of ["attn_norm", "ffn_norm"]) {
      this.#norm(`${name}.${norm}`, width);
      this.#bias(`${name}.${norm}`, width);
    }
    const matrices: [string, number, number][] = [
      ["attn_qkv", width, 3 * width],
      ["attn_output", width, width],
      ["ffn_up", width, feedForward],
      ["ffn_down", feedForward, width],
    ];
    for (const [matrix, inputs, outputs] of matrices) {
      this.#matrix(`${name}.${matrix}.weight`, inputs, outputs);
      this.#bias(`${name}.${matrix}`, outputs);
    }
  }

  #mambaBlock(name: string): void {
    const { width } = this.#shape;
    const inner = 2 * width;
    this.#norm(`${name}.attn_norm`, width);
    this.#matrix(`${name}.ssm_in.weight`, width, 2 * inner);
    this.#matrix(`${name}.ssm_conv1d.weight`, MAMBA.kernel, inner);
    this.#bias(`${name}.ssm_conv1d`, inner);
    this.#matrix(`${name}.ssm_x.weight`, inner, MAMBA.rank + 2 * MAMBA.state);
    this.#matrix(`${name}.ssm_dt.weight`, MAMBA.rank, inner);
    this.#bias(`${name}.ssm_dt`, inner);
    // Negative: the state decays.
    this.#file.tensor(`${name}.ssm_a`, [MAMBA.state, inner], new Float32Array(MAMBA.state * inner).fill(-1));
    this.#file.tensor(`${name}.ssm_d`, [inner], new Float32Array(inner).fill(1));
    this.#matrix(`${name}.ssm_out.weight`, inner, width);
  }

  #matrix(name: string, inputs: number, outputs: number): void {
    const scale = 2 / Math.sqrt(inputs);
    this.#file.tensor(
      name,
      [inputs, outputs],
      Float32Array.from({ length: inputs * outputs }, () => scale * this.#next()),
    );
  }

  #norm(name: string, width: number): void {
    this.#file.tensor(`${name}.weight`, [width], new Float32Array(width).fill(1));
  }

  #bias(name: string, width: number): void {
    this.#file.tensor(
      `${name}.bias`,
      [width],
      Float32Array.from({ length: width }, () => 0.1 * this.#next()),
    );
  }

  /** Uniform in [-1, 1), from a 32-bit counter mixed by multiplication and shifts. */
  #next(): number {
    this.#state = (this.#state + 0x6d2b79f5) >>> 0;
    let mixed = Math.imul(this.#state ^ (this.#state >>> 15), this.#state | 1);
    mixed ^= mixed + Math.imul(mixed ^ (mixed >>> 7), mixed | 61);
    return ((mixed ^ (mixed >>> 14)) >>> 0) / 2 ** 31 - 1;
  }
}
