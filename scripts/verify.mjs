// Everything that must hold before a change lands, in one command from a fresh clone. The last line counts the tests.
import { spawn } from "node:child_process";
import { readFileSync, rmSync } from "node:fs";
import path from "node:path";
import { buildTypeScript, main, ROOT, run, say, setUp, SetupError } from "./setup.mjs";

const REPORT = path.join(ROOT, "build", "test-report.json");
const WORKERS_REPORT = path.join(ROOT, "build", "test-report-workers.json");
const bin = (name) => path.join(ROOT, "node_modules", ".bin", name);

if (process.argv.includes("--help")) {
  say(
    "usage: npm run verify\n\nInstalls, builds, checks types, lint, format and generated files, and runs every test.",
  );
} else {
  await main(verify);
}

async function verify() {
  const started = Date.now();
  await step("set-up", setUp);
  await step("types", () => buildTypeScript([]));
  await step("lint", () => run("Lint", bin("oxlint"), ["--type-aware"]));
  await step("format", () =>
    run("Format (mend it with 'npm run format:fix')", bin("prettier"), ["--check", "--log-level=warn", "."]),
  );
  await step("worker bundle", () =>
    run("Bundling the Worker", bin("wrangler"), ["deploy", "--dry-run", "--outdir", "build/worker"], {
      env: { ...process.env, WRANGLER_SEND_METRICS: "false", CI: "true" },
    }),
  );
  const suites = [
    await suite("tests", ["run"], REPORT),
    await suite("tests inside workerd", ["run", "--config", "test/workers/vitest.config.ts"], WORKERS_REPORT),
  ];
  say(`verify took ${Math.round((Date.now() - started) / 1000)} s`);
  const total = (key) => suites.reduce((sum, one) => sum + one[key], 0);
  process.stdout.write(`${total("passed")} passed, ${total("failed")} failed, ${total("skipped")} skipped\n`);
  if (total("failed") > 0 || total("passed") === 0) process.exitCode = 1;
}

async function step(title, body) {
  const started = Date.now();
  say(`── ${title}`);
  await body();
  say(`   ${title}: ${((Date.now() - started) / 1000).toFixed(1)} s`);
}

/** Runs one test suite and counts its report; a suite that dies without one counts as a failure. */
async function suite(title, args, report) {
  rmSync(report, { force: true });
  const counts = { passed: 0, failed: 0, skipped: 0 };
  await step(title, async () => {
    const child = spawn(
      bin("vitest"),
      [...args, "--reporter=default", "--reporter=json", `--outputFile.json=${report}`],
      {
        cwd: ROOT,
        stdio: ["ignore", "inherit", "inherit"],
      },
    );
    const code = await new Promise((resolve, reject) => {
      child.once("error", reject);
      child.once("close", resolve);
    });
    count(report, counts);
    if (code !== 0 && counts.failed === 0) counts.failed = 1;
  });
  return counts;
}

function count(report, counts) {
  let text;
  try {
    text = readFileSync(report, "utf8");
  } catch {
    throw new SetupError("The test runner ended without a report; its output is above.");
  }
  for (const file of JSON.parse(text).testResults) {
    if (file.status === "failed" && file.assertionResults.length === 0) counts.failed++;
    for (const test of file.assertionResults) {
      if (test.status === "passed") counts.passed++;
      else if (test.status === "failed") counts.failed++;
      else {
        counts.skipped++;
        say(`skipped: ${test.fullName} (${test.meta?.skipReason ?? path.relative(ROOT, file.name)})`);
      }
    }
  }
}
