import { PassThrough } from "node:stream";
import { finished } from "node:stream/promises";
import { expect, it } from "vitest";
import { relayEngineLog } from "../../../../backend/supervisor/engine-log.ts";
import { createLogger } from "../../../../shared/logging/logger.ts";
import { ManualClock } from "../../../support/manual-clock.ts";

it("carries an engine's own lines and a library's last words, but no text that a library echoes", async () => {
  const told: string[] = [];
  const logger = createLogger({
    level: "debug",
    format: "json",
    clock: new ManualClock(),
    write: (line) => told.push(line),
  });
  const stderr = new PassThrough();
  relayEngineLog(stderr, logger);
  stderr.write('{"level":"warn","message":"slow","ms":7,"nested":{"x":1}}\n');
  stderr.write('parse: error parsing grammar: root ::= "the caller\'s secret"\n');
  stderr.write("ggml-cpu.c:100: GGML_ASSERT(n > 0) failed\n");
  stderr.end("\n");
  await finished(stderr);
  await new Promise((resolve) => setImmediate(resolve));
  const lines = told.map((line): unknown => JSON.parse(line));
  expect(lines).toMatchObject([
    { level: "warn", message: "slow", ms: 7 },
    { level: "debug", length: 60 },
    { level: "warn", message: "ggml-cpu.c:100: GGML_ASSERT(n > 0) failed" },
  ]);
  expect(told.join()).not.toContain("secret");
});
