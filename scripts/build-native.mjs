#!/usr/bin/env node
// Builds backend/native with node-gyp. A second call with nothing changed returns at once.
import { spawnSync } from "node:child_process";
import { createHash } from "node:crypto";
import { existsSync, mkdirSync, readFileSync, readdirSync, rmSync, writeFileSync } from "node:fs";
import { dirname, join, relative } from "node:path";
import { fileURLToPath } from "node:url";
import { availableParallelism } from "node:os";

const HELP = `Usage: node scripts/build-native.mjs [--sanitize] [--force] [--quiet]

Builds the native core (backend/native) against the llama.cpp libraries that node-llama-cpp ships.

  --sanitize   build with AddressSanitizer and UBSan into backend/native/build/Debug
  --force      build even when nothing changed
  --quiet      say nothing unless it fails
  --help       this text`;

const root = join(dirname(fileURLToPath(import.meta.url)), "..");
const nativeDir = join(root, "backend", "native");
const llamaSource = join(root, "build", "llama.cpp");
const flags = new Set(process.argv.slice(2));

/** Ends the build with one line that says what to do. */
function fail(message) {
  console.error(`build-native: ${message}`);
  process.exit(1);
}

function say(message) {
  if (!flags.has("--quiet")) console.error(`build-native: ${message}`);
}

function requireTool(command, args, whatToDo) {
  const found = spawnSync(command, args, { stdio: "ignore" });
  if (found.error || found.status !== 0) fail(`${command} is missing or does not run: ${whatToDo}`);
}

function packageVersion(name) {
  const file = join(root, "node_modules", name, "package.json");
  if (!existsSync(file)) fail(`node_modules/${name} is missing: run \`npm ci\` first`);
  return JSON.parse(readFileSync(file, "utf8")).version;
}

/** The headers and the prebuilt libraries must be of one release; both sit in the same npm release. */
function llamaRelease() {
  const file = join(root, "node_modules", "node-llama-cpp", "llama", "binariesGithubRelease.json");
  return JSON.parse(readFileSync(file, "utf8")).release;
}

function checkOutHeaders(version) {
  const marker = join(llamaSource, ".steerage-version");
  if (existsSync(marker) && readFileSync(marker, "utf8") === version) return;
  requireTool("git", ["--version"], "install it (Debian: apt-get install git)");
  rmSync(llamaSource, { recursive: true, force: true });
  mkdirSync(dirname(llamaSource), { recursive: true });
  say("unpacking the llama.cpp headers from node-llama-cpp's source bundle");
  const bundle = join(root, "node_modules", "node-llama-cpp", "llama", "gitRelease.bundle");
  const clone = spawnSync("git", ["-c", "advice.detachedHead=false", "clone", "--quiet", bundle, llamaSource], {
    stdio: ["ignore", "ignore", "pipe"],
    encoding: "utf8",
  });
  if (clone.status !== 0) fail(`git could not unpack ${relative(root, bundle)}: ${clone.stderr.trim()}`);
  writeFileSync(marker, version);
}

/** Node's own headers when they were installed with it, else node-gyp fetches them once. */
function nodeHeaderArguments() {
  const prefix = dirname(dirname(process.execPath));
  return existsSync(join(prefix, "include", "node", "node_api.h")) ? [`--nodedir=${prefix}`] : [];
}

function fingerprint(versions) {
  const hash = createHash("sha256");
  const sources = readdirSync(join(nativeDir, "src"))
    .toSorted()
    .map((name) => join(nativeDir, "src", name));
  for (const file of [join(nativeDir, "binding.gyp"), fileURLToPath(import.meta.url), ...sources]) {
    hash.update(relative(root, file)).update("\0").update(readFileSync(file)).update("\0");
  }
  hash.update(JSON.stringify(versions));
  return hash.digest("hex");
}

function isAlive(pid) {
  try {
    process.kill(pid, 0);
    return true;
  } catch {
    return false;
  }
}

/** Two builds in one folder delete each other's files, so the second waits; released when this process ends. */
function takeLock() {
  const lock = join(root, "build", "native-build.lock");
  mkdirSync(dirname(lock), { recursive: true });
  for (let told = false; ; Atomics.wait(new Int32Array(new SharedArrayBuffer(4)), 0, 0, 200)) {
    try {
      writeFileSync(lock, String(process.pid), { flag: "wx" });
      process.on("exit", () => rmSync(lock, { force: true }));
      return;
    } catch (error) {
      if (error.code !== "EEXIST") fail(`${relative(root, lock)} cannot be written: ${error.message}`);
    }
    const holder = existsSync(lock) ? Number(readFileSync(lock, "utf8")) : 0;
    // An empty file is one that is being written right now.
    if (holder > 0 && !isAlive(holder)) rmSync(lock, { force: true });
    else if (!told) say("waiting for another build of the native core");
    told = true;
  }
}

function isUpToDate() {
  return existsSync(addon) && existsSync(stamp) && readFileSync(stamp, "utf8") === wanted;
}

function nodeGyp(args) {
  const entry = join(root, "node_modules", "node-gyp", "bin", "node-gyp.js");
  const run = spawnSync(process.execPath, [entry, ...args], {
    cwd: nativeDir,
    encoding: "utf8",
    stdio: ["ignore", "pipe", "pipe"],
    maxBuffer: 64 * 1024 * 1024,
  });
  if (run.status === 0) return;
  const log = join(root, "build", "native-build.log");
  mkdirSync(dirname(log), { recursive: true });
  writeFileSync(log, `${run.stdout ?? ""}\n${run.stderr ?? ""}`);
  const firstError = (run.stderr ?? "").split("\n").find((line) => /error|ERR!/u.test(line)) ?? "no message";
  fail(`node-gyp ${args[0]} failed (${firstError.trim()}); the whole output is in ${relative(root, log)}`);
}

if (flags.has("--help")) {
  console.log(HELP);
  process.exit(0);
}
for (const flag of flags) {
  if (!["--sanitize", "--force", "--quiet"].includes(flag)) fail(`unknown option ${flag}; see --help`);
}
if (process.platform !== "linux") fail("the native core is built on Linux only, for now");

const platformPackage = `@node-llama-cpp/linux-${process.arch}`;
const versions = {
  llama: packageVersion("node-llama-cpp"),
  libraries: packageVersion(platformPackage),
  addonApi: packageVersion("node-addon-api"),
  modules: process.versions.modules,
  release: llamaRelease(),
};
if (versions.llama !== versions.libraries) {
  fail(`node-llama-cpp ${versions.llama} and ${platformPackage} ${versions.libraries} differ: run \`npm ci\` again`);
}

const configuration = flags.has("--sanitize") ? "Debug" : "Release";
const outDir = join(nativeDir, "build", configuration);
const addon = join(outDir, "steerage_native.node");
const stamp = join(outDir, ".steerage-stamp");
const wanted = fingerprint(versions);
if (!flags.has("--force") && isUpToDate()) {
  say("up to date");
  process.exit(0);
}

requireTool("g++", ["--version"], "install it (Debian: apt-get install g++ make)");
requireTool("make", ["--version"], "install it (Debian: apt-get install g++ make)");
requireTool("python3", ["--version"], "install it (Debian: apt-get install python3), node-gyp needs it");
takeLock();
if (!flags.has("--force") && isUpToDate()) {
  say("built by another process meanwhile");
  process.exit(0);
}
checkOutHeaders(versions.llama);
say(`building ${relative(root, addon)} (llama.cpp ${versions.release})`);
rmSync(stamp, { force: true });
const mode = configuration === "Debug" ? ["--debug"] : ["--release"];
const bins = `../../node_modules/${platformPackage}/bins/linux-${process.arch}`;
nodeGyp([
  "configure",
  ...mode,
  ...nodeHeaderArguments(),
  "--",
  `-Dllama_release=${versions.release}`,
  `-Dllama_bins=${bins}`,
]);
nodeGyp(["build", ...mode, "--jobs", String(availableParallelism()), ...nodeHeaderArguments()]);
if (!existsSync(addon)) fail(`node-gyp ended well but ${relative(root, addon)} is not there`);
writeFileSync(stamp, wanted);
say("done");
