import { describe, expect, it } from "vitest";
import { ConfigError } from "../../../../shared/config/read-config.ts";
import {
  contextSize,
  smallerContext,
  type ContextSize,
  type SizeWish,
} from "../../../../backend/engine/load/context-size.ts";
import { leastCopiedTokens, sizeWish } from "../../../../backend/engine/load/kv-layout.ts";

const wish = (slots: number, streams: SizeWish["streams"] = "never"): SizeWish => ({ slots, streams });

function tried(first: ContextSize, how: SizeWish): [number, number, string][] {
  const sizes: [number, number, string][] = [];
  for (let size: ContextSize | null = first; size !== null; size = smallerContext(size, how)) {
    sizes.push([size.contextLength, size.cellCount, size.layout]);
  }
  return sizes;
}

describe("the size of a context", () => {
  it("fits every slot at full length, with a few cells to spare", () => {
    expect(contextSize(0, 1_024, wish(8))).toEqual({
      contextLength: 1_024,
      cellCount: 8_192,
      nativeCells: 8_448,
      layout: "unified",
    });
  });

  it("takes the asked window as a ceiling", () => {
    expect(contextSize(4_096, 1_024, wish(1)).contextLength).toBe(1_024);
    expect(contextSize(512, 1_024, wish(1)).contextLength).toBe(512);
  });

  it("does not give long windows to every slot, but always one", () => {
    expect(contextSize(0, 32_768, wish(8)).cellCount).toBe(65_536);
    expect(contextSize(0, 131_072, wish(8)).cellCount).toBe(131_072);
  });

  it("gives every slot a stream that holds its window and the spare cells, where all windows fit", () => {
    expect(contextSize(0, 1_024, wish(8, "fitting"))).toEqual({
      contextLength: 1_024,
      cellCount: 8_192,
      nativeCells: 8 * 1_280,
      layout: "streams",
    });
    expect(contextSize(0, 8_192, wish(8, "fitting")).layout).toBe("streams");
    expect(contextSize(0, 16_384, wish(8, "fitting"))).toMatchObject({ layout: "unified", cellCount: 65_536 });
    expect(contextSize(0, 16_384, wish(8, "always"))).toMatchObject({ layout: "streams", cellCount: 131_072 });
    expect(contextSize(0, 1_024, wish(1, "always")).layout).toBe("unified");
  });

  it("shrinks where memory is short: first the windows' number, then their length", () => {
    expect(tried(contextSize(4_096, 8_192, wish(4)), wish(4))).toEqual([
      [4_096, 16_384, "unified"],
      [4_096, 8_192, "unified"],
      [4_096, 4_096, "unified"],
      [2_048, 2_048, "unified"],
      [1_024, 1_024, "unified"],
    ]);
  });

  it("gives up streams where memory is short, unless they are asked for: then all windows get shorter", () => {
    const fitting = wish(4, "fitting");
    expect(tried(contextSize(4_096, 8_192, fitting), fitting).slice(0, 2)).toEqual([
      [4_096, 16_384, "streams"],
      [4_096, 8_192, "unified"],
    ]);
    const always = wish(4, "always");
    expect(tried(contextSize(4_096, 8_192, always), always)).toEqual([
      [4_096, 16_384, "streams"],
      [2_048, 8_192, "streams"],
      [1_024, 4_096, "streams"],
    ]);
  });
});

describe("the layout of the cells", () => {
  const options = { kv_layout: "auto", slots: 4, device: "cpu", gpu_layers: -1 } as const;
  const plain = { recurrent: false, hybrid: false };

  it("is streams by itself on a processor only, and not where the model has a state", () => {
    expect(sizeWish(options, plain)).toEqual({ slots: 4, streams: "fitting" });
    expect(sizeWish({ ...options, device: "cuda", gpu_layers: 0 }, plain).streams).toBe("fitting");
    expect(sizeWish({ ...options, device: "cuda" }, plain).streams).toBe("never");
    expect(sizeWish(options, { ...plain, recurrent: true }).streams).toBe("never");
    expect(sizeWish(options, { ...plain, hybrid: true }).streams).toBe("never");
  });

  it("is what the operator says, where the model can have it", () => {
    expect(sizeWish({ ...options, kv_layout: "unified" }, plain).streams).toBe("never");
    expect(sizeWish({ ...options, device: "cuda", kv_layout: "streams" }, plain).streams).toBe("always");
    const withState = () => sizeWish({ ...options, kv_layout: "streams" }, { ...plain, hybrid: true });
    expect(withState).toThrow(ConfigError);
    expect(withState).toThrow("kv_layout streams");
  });
});

describe("a copy from stream to stream", () => {
  const model = {
    architecture: "llama",
    layerCount: 12,
    embeddingWidth: 768,
    parameterCount: 85_000_000,
    metadata: {},
  };
  const use = { slots: 16, threads: 1, kvType: "f16" } as const;
  const size = { nativeCells: 16 * 1_280 };

  it("pays from fewer tokens on the smaller the stream is against the model, and from more with more threads", () => {
    // 1,280 cells of 12 layers, two rows of 768 halves each: 47 MB, eight times that over 85 million.
    expect(leastCopiedTokens(size, model, use)).toBe(5);
    expect(leastCopiedTokens(size, model, { ...use, threads: 4 })).toBe(18);
    expect(leastCopiedTokens({ nativeCells: 16 * 10_240 }, model, use)).toBe(36);
    expect(leastCopiedTokens(size, { ...model, parameterCount: 8_000_000_000 }, use)).toBe(1);
  });

  it("moves less where heads share their keys and where cells are quantised", () => {
    const metadata = { "llama.attention.head_count": "12", "llama.attention.head_count_kv": "3" };
    expect(leastCopiedTokens({ nativeCells: 16 * 10_240 }, { ...model, metadata }, use)).toBe(9);
    expect(leastCopiedTokens({ nativeCells: 16 * 10_240 }, model, { ...use, kvType: "q8_0" })).toBe(19);
  });
});
