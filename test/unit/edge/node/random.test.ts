import { describe, expect, it } from "vitest";
import { pooledRandomBytes } from "../../../../edge/node/random.node.ts";

describe("pooled random bytes", () => {
  it("hands out every byte once, across the ends of pools and to callers that keep what they got", () => {
    const draw = pooledRandomBytes();
    const drawn = Array.from({ length: 1_000 }, () => draw(30));
    expect(new Set(drawn.map((bytes) => Buffer.from(bytes).toString("hex"))).size).toBe(1_000);
    const places = new Set(
      drawn.map((bytes) => `${new Uint8Array(bytes.buffer).slice(0, 16).join(",")}+${bytes.byteOffset}`),
    );
    expect(places.size).toBe(1_000);
    for (const bytes of drawn) expect(bytes).toHaveLength(30);
  });

  it("gives as many as were asked for, more than a pool holds included", () => {
    const draw = pooledRandomBytes();
    expect(draw(10_000)).toHaveLength(10_000);
    expect(draw(0)).toHaveLength(0);
    expect(draw(4_096)).toHaveLength(4_096);
  });
});
