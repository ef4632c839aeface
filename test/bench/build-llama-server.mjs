// Builds llama.cpp's own server, the yardstick of `npm run bench:engine`, from the source bundle inside node-llama-cpp.
// Takes about 15 minutes on two cores, once; verify does not need it.
import { spawnSync } from "node:child_process";
import { existsSync, mkdirSync, readFileSync, writeFileSync } from "node:fs";
import { availableParallelism } from "node:os";
import path from "node:path";
import { fileURLToPath } from "node:url";
import { parseArgs } from "node:util";

const ROOT = path.resolve(path.dirname(fileURLToPath(import.meta.url)), "../..");
const SOURCE = path.join(ROOT, "build", "llama.cpp");
const OUT = path.join(ROOT, "build", "bench", "llama-server");
const PROGRAM = path.join(OUT, "bin", "llama-server");
const STAMP = path.join(OUT, ".steerage-stamp");

const HELP = `Usage: node test/bench/build-llama-server.mjs [--jobs N] [--force]

Builds build/bench/llama-server/bin/llama-server: a release build for this machine's own processor (GGML_NATIVE), with
OpenMP, which is what llama.cpp's build gives whoever asks for nothing else. The product's engine runs on the prebuilt
library of node-llama-cpp for the same processor family, of the same release, without OpenMP.

  --jobs N   compilers at a time (default: the cores)
  --force    configure and build although nothing changed
  --help     this text`;

/** What the server is built with; part of the stamp. */
const SETTINGS = [
  "CMAKE_BUILD_TYPE=Release",
  "GGML_NATIVE=ON",
  "GGML_OPENMP=ON",
  "LLAMA_BUILD_IS_DEV=OFF",
  "LLAMA_BUILD_TESTS=OFF",
  "LLAMA_BUILD_EXAMPLES=OFF",
  "LLAMA_BUILD_APP=OFF",
  "LLAMA_BUILD_TOOLS=ON",
  "LLAMA_BUILD_SERVER=ON",
  // Pages are of no use here, and would be fetched from the net.
  "LLAMA_BUILD_UI=OFF",
  "LLAMA_USE_PREBUILT_UI=OFF",
  "LLAMA_OPENSSL=OFF",
];

function fail(message) {
  console.error(`build-llama-server: ${message}`);
  process.exit(1);
}

function requireTool(command, debianPackage) {
  const found = spawnSync(command, ["--version"], { stdio: "ignore" });
  if (found.error || found.status !== 0)
    fail(`${command} is missing: install it (Debian: apt-get install ${debianPackage})`);
}

function run(title, args) {
  console.error(`build-llama-server: ${title}`);
  const { status, error } = spawnSync("cmake", args, { cwd: ROOT, stdio: ["ignore", "inherit", "inherit"] });
  if (error || status !== 0) fail(`${title} failed; the output is above`);
}

function readFlags() {
  try {
    return parseArgs({
      options: {
        jobs: { type: "string", default: String(availableParallelism()) },
        force: { type: "boolean", default: false },
        help: { type: "boolean", default: false },
      },
    }).values;
  } catch (error) {
    return fail(`${error.message}; see --help`);
  }
}

const flags = readFlags();
if (flags.help) {
  console.log(HELP);
  process.exit(0);
}
if (!/^[1-9]\d*$/u.test(flags.jobs)) fail(`--jobs must be a whole number of at least 1, not '${flags.jobs}'`);
const marker = path.join(SOURCE, ".steerage-version");
if (!existsSync(marker)) fail("llama.cpp's source is not unpacked yet: run `npm run build` first");
const stamp = JSON.stringify({ source: readFileSync(marker, "utf8"), settings: SETTINGS });
if (!flags.force && existsSync(PROGRAM) && existsSync(STAMP) && readFileSync(STAMP, "utf8") === stamp) {
  console.error("build-llama-server: up to date");
  process.exit(0);
}
for (const [command, debianPackage] of [
  ["cmake", "cmake"],
  ["g++", "g++"],
  ["make", "make"],
]) {
  requireTool(command, debianPackage);
}
mkdirSync(OUT, { recursive: true });
run("configuring", ["-S", SOURCE, "-B", OUT, "-G", "Unix Makefiles", ...SETTINGS.map((setting) => `-D${setting}`)]);
run("building, about 15 minutes on two cores", ["--build", OUT, "--target", "llama-server", "--parallel", flags.jobs]);
if (!existsSync(PROGRAM)) fail(`cmake ended well but ${path.relative(ROOT, PROGRAM)} is not there`);
writeFileSync(STAMP, stamp);
console.error(`build-llama-server: ${path.relative(ROOT, PROGRAM)} is ready`);
