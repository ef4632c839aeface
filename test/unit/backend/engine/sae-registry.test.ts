import { describe, expect, it } from "vitest";
import type { LoadedSae } from "../../../../backend/engine/engine-model.ts";
import { SaeRegistry } from "../../../../backend/engine/sae-registry.ts";

/** An SAE that notes when its native memory is given back. */
function sae(id: string, disposed: string[], name = id): LoadedSae {
  return {
    id,
    digest: name,
    layer: 1,
    hookPoint: "blocks.1.hook_resid_post",
    featureCount: 1,
    embeddingWidth: 1,
    decoderRows: new Float32Array(1),
    notes: new Map(),
    fidelity: null,
    about: { format: "saelens", architecture: "standard", folds: [], folder: "/nowhere" },
    native: {
      featureCount: 1,
      embeddingWidth: 1,
      encode: () => new Float32Array(1),
      dispose: () => disposed.push(name),
    },
  };
}

describe("attached SAEs", () => {
  it("are given back as soon as they are detached and nobody holds them", () => {
    const disposed: string[] = [];
    const registry = new SaeRegistry([sae("a", disposed), sae("b", disposed)]);
    expect(registry.detach("a")).toBe(true);
    expect(registry.detach("a")).toBe(false);
    expect(disposed).toEqual(["a"]);
    expect(registry.attached.map(({ id }) => id)).toEqual(["b"]);
  });

  it("live until the last request that began with them is done", () => {
    const disposed: string[] = [];
    const first = sae("a", disposed);
    const registry = new SaeRegistry([first]);
    const releases = [registry.hold([first, first]), registry.hold([first])];
    registry.attach(sae("a", disposed, "second"));
    expect(registry.attached.map(({ digest }) => digest)).toEqual(["second"]);
    releases[0]?.();
    releases[0]?.();
    expect(disposed).toEqual([]);
    releases[1]?.();
    expect(disposed).toEqual(["a"]);
  });

  it("that are held and still attached stay", () => {
    const disposed: string[] = [];
    const only = sae("a", disposed);
    const registry = new SaeRegistry([only]);
    registry.hold([only])();
    expect(disposed).toEqual([]);
    registry.close();
    expect(disposed).toEqual(["a"]);
  });

  it("that arrive after the end are given back at once", () => {
    const disposed: string[] = [];
    const registry = new SaeRegistry([]);
    registry.close();
    registry.attach(sae("late", disposed));
    expect(disposed).toEqual(["late"]);
  });
});
