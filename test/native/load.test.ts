import { execFileSync } from "node:child_process";
import { existsSync, readdirSync } from "node:fs";
import { join } from "node:path";
import { describe, expect, it } from "vitest";
import { NATIVE_INTERFACE_VERSION } from "../../backend/native/binding.ts";
import { librariesDirectory, loadNative, nativeErrorCode } from "../../backend/native/load.ts";
import { nativeAddon, repositoryFile } from "../support/native-harness.ts";

const ADDON = repositoryFile("backend/native/build/Release/steerage_native.node");

function dynamicSection(file: string): { needed: string[]; paths: string[] } {
  const lines = execFileSync("readelf", ["--dynamic", file], { encoding: "utf8" }).split("\n");
  const names = (kind: RegExp): string[] =>
    lines.filter((line) => kind.test(line)).map((line) => /\[(.*)\]/u.exec(line)?.[1] ?? "");
  return { needed: names(/\(NEEDED\)/u), paths: names(/\((RPATH|RUNPATH)\)/u) };
}

describe("the built addon", () => {
  it("names only the two llama.cpp libraries that every variant has under the same name", () => {
    const { needed, paths } = dynamicSection(ADDON);
    const system = /^(libstdc\+\+|libm|libgcc_s|libc|ld-linux-[\w-]+|libpthread|libdl)\.so(\.\d+)*$/u;
    expect(needed.filter((name) => !system.test(name)).toSorted()).toEqual(["libggml-base.so", "libllama-common.so"]);
    expect(paths).toEqual([]);
  });

  it("loads without any environment variable and reports its interface and release", async () => {
    expect(process.env["LD_LIBRARY_PATH"]).toBeUndefined();
    const addon = await nativeAddon();
    expect(addon.interfaceVersion).toBe(NATIVE_INTERFACE_VERSION);
    expect(addon.llamaRelease).toMatch(/^[bv]\d/u);
  });

  it("runs on the libraries of the folder that was asked for", async () => {
    await nativeAddon();
    const directory = await librariesDirectory("cpu");
    const maps = execFileSync("cat", [`/proc/${process.pid}/maps`], { encoding: "utf8" });
    const loaded = new Set(maps.match(/\S*lib(?:llama|ggml)\S*\.so/gu));
    expect(loaded.size).toBeGreaterThanOrEqual(5);
    for (const file of loaded) expect(file.startsWith(directory)).toBe(true);
  });

  it("finds the same two library names in every installed variant", async () => {
    for (const variant of ["cpu", "cuda", "vulkan"] as const) {
      const directory = await librariesDirectory(variant).catch(() => null);
      if (directory === null) continue;
      for (const name of ["libggml-base.so", "libllama-common.so"]) {
        expect(existsSync(join(directory, name))).toBe(true);
      }
      expect(readdirSync(directory).some((name) => /^libllama\..*so$/u.test(name))).toBe(true);
    }
  });

  it("says what is wrong when the addon file is missing or no addon", async () => {
    for (const addonPath of ["/nowhere/steerage_native.node", repositoryFile("package.json")]) {
      const failure = await loadNative({ variant: "cpu", onLog: () => undefined, addonPath }).catch(
        (error: unknown) => error,
      );
      expect(nativeErrorCode(failure)).toBe("backend_load_failed");
    }
  });

  it("refuses to mix two variants in one process", async () => {
    await nativeAddon();
    const failure = await loadNative({ variant: "vulkan", onLog: () => undefined }).catch((error: unknown) => error);
    expect(nativeErrorCode(failure)).toBe("backend_load_failed");
  });

  it("refuses to start a second folder of backends in one process", async () => {
    const addon = await nativeAddon();
    const options = { backendsDirectory: "/nowhere", onLog: () => undefined };
    expect(() => {
      addon.initialize(options);
    }).toThrow(expect.objectContaining({ code: "invalid_argument" }));
  });
});
