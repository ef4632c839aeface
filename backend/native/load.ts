import { existsSync, readFileSync } from "node:fs";
import { constants } from "node:os";
import { dirname, join } from "node:path";
import { fileURLToPath } from "node:url";
import { z } from "zod";
import { NATIVE_ERROR_CODES, NATIVE_INTERFACE_VERSION } from "./binding.ts";
import type { NativeAddon, NativeErrorCode, NativeLogLevel } from "./binding.ts";

/** Which build of the llama.cpp libraries runs; each sits in an npm package of its own. */
export type NativeVariant = "cpu" | "cuda" | "vulkan";

export interface LoadOptions {
  readonly variant: NativeVariant;
  readonly onLog: (level: NativeLogLevel, text: string) => void;
  /** Another build of the addon, such as the sanitized one; default is the release build of this checkout. */
  readonly addonPath?: string;
}

/** The addon cannot be used: not built, built for something else, or its libraries do not load. */
export class NativeLoadError extends Error {
  readonly code: NativeErrorCode = "backend_load_failed";
  override readonly name = "NativeLoadError";
}

// Keeps a library loaded after Node has found that it is no addon; Node's own list of flags does not name it.
const RTLD_NODELETE = 0x1000;
/** In the order of their dependencies; the rest of the variant comes with them from the same folder. */
const LIBRARIES = ["libggml-base.so", "libllama-common.so"];
const ADDON = join("backend", "native", "build", "Release", "steerage_native.node");

/** Two variants have libraries of the same names: the addon would run on whichever came first. */
let loadedVariant: NativeVariant | null = null;

const binsModuleSchema = z.object({ getBinsDir: z.custom<() => unknown>((value) => typeof value === "function") });
const binsDirSchema = z.object({ binsDir: z.string() });
const buildMetadataSchema = z.object({
  buildOptions: z.object({ llamaCpp: z.object({ release: z.string() }) }),
});
const addonVersionsSchema = z.object({ interfaceVersion: z.number(), llamaRelease: z.string() });
const addonSchema = z.custom<NativeAddon>(
  (value) =>
    addonVersionsSchema.safeParse(value).success &&
    ["initialize", "loadModel", "loadSae", "openAccountBoard"].every(
      (name) => typeof Reflect.get(Object(value), name) === "function",
    ),
);
const errorCodeSchema = z.object({ code: z.enum(NATIVE_ERROR_CODES) });

/** The code of an error that the addon threw, or null for any other value. */
export function nativeErrorCode(error: unknown): NativeErrorCode | null {
  const parsed = errorCodeSchema.safeParse(error);
  return error instanceof Error && parsed.success ? parsed.data.code : null;
}

/**
 * Folder of a variant's libraries, as its npm package tells it. Throws NativeLoadError when the package is not
 * installed (it is an optional dependency of node-llama-cpp) or holds no libraries for this machine.
 */
export async function librariesDirectory(variant: NativeVariant): Promise<string> {
  const target = `${process.platform}-${process.arch}${variant === "cpu" ? "" : `-${variant}`}`;
  const packageName = `@node-llama-cpp/${target}`;
  let loaded: unknown;
  try {
    loaded = await import(packageName);
  } catch {
    throw new NativeLoadError(`${packageName} is not installed, so there are no ${variant} libraries to run on`);
  }
  const { binsDir } = binsDirSchema.parse(binsModuleSchema.parse(loaded).getBinsDir());
  const directory = join(binsDir, target);
  if (!existsSync(join(directory, "libllama-common.so"))) {
    throw new NativeLoadError(`${packageName} has no libraries for ${target}`);
  }
  return directory;
}

/**
 * Loads the libraries of one variant, then the addon on top of them, and starts the compute backends. No environment
 * variable is needed: the addon asks for its libraries by name, and the loader has put this variant's under those names
 * first. One variant per process; call it once.
 */
export async function loadNative(options: LoadOptions): Promise<NativeAddon> {
  if (loadedVariant !== null && loadedVariant !== options.variant) {
    throw new NativeLoadError(`this process runs on the ${loadedVariant} libraries already`);
  }
  const directory = await librariesDirectory(options.variant);
  loadedVariant = options.variant;
  const addonPath = options.addonPath ?? findAddon();
  openLibraries(directory);
  const addon = openAddon(addonPath);
  checkVersions(addon, directory);
  addon.initialize({ backendsDirectory: directory, onLog: options.onLog });
  return addon;
}

/** Walks up from this file: it runs from the sources and from dist/, the addon stays beside the sources. */
function findAddon(): string {
  const start = dirname(fileURLToPath(import.meta.url));
  for (let folder = start; folder !== dirname(folder); folder = dirname(folder)) {
    const candidate = join(folder, ADDON);
    if (existsSync(candidate)) return candidate;
  }
  throw new NativeLoadError("the native core is not built: run `node scripts/build-native.mjs`");
}

function openLibraries(directory: string): void {
  for (const library of LIBRARIES) {
    try {
      process.dlopen(
        { exports: {} },
        join(directory, library),
        constants.dlopen.RTLD_NOW | constants.dlopen.RTLD_GLOBAL | RTLD_NODELETE,
      );
    } catch (error) {
      // A plain library never registers itself as an addon; that very complaint says that it has been loaded.
      const message = error instanceof Error ? error.message : String(error);
      if (!message.includes("did not self-register")) throw new NativeLoadError(`${library}: ${message}`);
    }
  }
}

function openAddon(path: string): NativeAddon {
  const module: { exports: unknown } = { exports: {} };
  try {
    process.dlopen(module, path, constants.dlopen.RTLD_NOW);
  } catch (error) {
    throw new NativeLoadError(error instanceof Error ? error.message : String(error));
  }
  const checked = addonSchema.safeParse(module.exports);
  if (!checked.success) throw new NativeLoadError("steerage_native.node does not export what binding.ts names");
  if (checked.data.interfaceVersion !== NATIVE_INTERFACE_VERSION) {
    throw new NativeLoadError(
      `steerage_native.node has interface ${checked.data.interfaceVersion}, this program needs ` +
        `${NATIVE_INTERFACE_VERSION}: run \`node scripts/build-native.mjs\``,
    );
  }
  return checked.data;
}

/** Structures are passed by value between the addon and the libraries, so their releases must be the same. */
function checkVersions(addon: NativeAddon, directory: string): void {
  const file = join(directory, "_nlcBuildMetadata.json");
  const metadata = buildMetadataSchema.parse(JSON.parse(readFileSync(file, "utf8")));
  const release = metadata.buildOptions.llamaCpp.release;
  if (release !== addon.llamaRelease) {
    throw new NativeLoadError(
      `the libraries are llama.cpp ${release}, the addon was built for ${addon.llamaRelease}: run ` +
        "`node scripts/build-native.mjs`",
    );
  }
}
