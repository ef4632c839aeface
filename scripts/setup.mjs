// Brings a checkout to the point where its programs run: dependencies, TypeScript, native core. Plain JavaScript on
// Node's own modules, since nothing is installed yet when it starts. Every step is skipped when nothing changed.
import { spawn } from "node:child_process";
import { createHash } from "node:crypto";
import { existsSync, readFileSync, writeFileSync } from "node:fs";
import path from "node:path";
import { fileURLToPath } from "node:url";

export const ROOT = path.resolve(path.dirname(fileURLToPath(import.meta.url)), "..");

const OLDEST_NODE = [20, 19];
const INSTALL_STAMP = path.join(ROOT, "node_modules", ".steerage-install");

/** An error whose message is all that a person needs. */
export class SetupError extends Error {
  exitCode = 1;
}

/** A command line that cannot be used. */
export class UsageError extends SetupError {
  exitCode = 2;
}

/** Progress goes to stderr: stdout belongs to the caller's one line. */
export function say(text) {
  process.stderr.write(`${text}\n`);
}

export function checkNode() {
  const [major = 0, minor = 0] = process.versions.node.split(".").map(Number);
  if (major > OLDEST_NODE[0] || (major === OLDEST_NODE[0] && minor >= OLDEST_NODE[1])) return;
  throw new SetupError(`Node ${OLDEST_NODE.join(".")} or newer is needed; this is ${process.versions.node}.`);
}

/** Runs a command with its whole output on stderr; fails with one line that names it. */
export async function run(title, command, args, options = {}) {
  const child = spawn(command, args, { cwd: ROOT, stdio: ["ignore", "pipe", "pipe"], ...options });
  for (const stream of [child.stdout, child.stderr]) stream?.pipe(process.stderr, { end: false });
  const code = await new Promise((resolve, reject) => {
    child.once("error", (error) =>
      reject(new SetupError(`${title}: '${command}' could not be started (${error.code ?? error.message}).`)),
    );
    child.once("close", (status, signal) => resolve(status ?? signal));
  });
  if (code !== 0) throw new SetupError(`${title} failed (${command} ended with ${code}); its output is above.`);
}

const installWanted = () =>
  createHash("sha256")
    .update(readFileSync(path.join(ROOT, "package-lock.json")))
    .update(`\n${process.versions.modules} ${process.platform} ${process.arch}`)
    .digest("hex");

export async function install() {
  const wanted = installWanted();
  if (existsSync(INSTALL_STAMP) && readFileSync(INSTALL_STAMP, "utf8") === wanted) return;
  say("Installing dependencies (npm ci); it prints nothing for a minute or more...");
  await run("Installing dependencies", "npm", ["ci", "--no-audit", "--no-fund", "--loglevel=error"]);
  writeFileSync(INSTALL_STAMP, wanted);
}

/** The programs that run on this machine; the Worker and the tests are compiled by verify. */
const PROGRAMS = ["edge/node", "backend"];

export async function buildTypeScript(projects) {
  const compiler = path.join(ROOT, "node_modules", "typescript", "bin", "tsc");
  await run("Compiling TypeScript", process.execPath, [compiler, "-b", ...projects]);
}

export async function buildNative() {
  await run("Building the native core", process.execPath, [path.join(ROOT, "scripts", "build-native.mjs")]);
}

/** Everything that the programs need, in order. */
export async function setUp() {
  checkNode();
  await install();
  await buildTypeScript(PROGRAMS);
  await buildNative();
}

/** Runs a script's main function: a SetupError is one line, anything else is a fault of ours and shows its stack. */
export async function main(body) {
  try {
    await body();
  } catch (error) {
    process.stderr.write(error instanceof SetupError ? `${error.message}\n` : `${error?.stack ?? error}\n`);
    process.exitCode = error instanceof SetupError ? error.exitCode : 1;
  }
}
