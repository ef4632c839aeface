import { describe, expect, it } from "vitest";
import { z } from "zod";
import type { ProofSnapshot, UsageBatch, UsageRow } from "../../../../edge/ports/usage-store.ts";
import { costNanoUsd } from "../../../../edge/usage/cost.ts";
import { exportedRows } from "../../../../edge/usage/export.ts";
import { csvHeader, csvLine, jsonLine } from "../../../../edge/usage/export-format.ts";
import {
  addExported,
  differencesOf,
  exportDifferences,
  proofSides,
  type ProofDifference,
} from "../../../../edge/usage/proof.ts";
import { attemptRow, batchOf, counterRow, HOUR_MS, START_MS, usageRow } from "../../../support/usage-rows.ts";

const RANGE = { fromMs: null, toMs: null, settledUpToMs: START_MS + HOUR_MS };

/** What a database would answer that holds exactly these rows. */
function snapshotOf(stored: UsageBatch): ProofSnapshot {
  return {
    attempts: stored.attempts
      .filter((row) => row.endedHourMs !== null)
      .map((row) => ({
        host: row.backend,
        epoch: row.epoch ?? 0,
        hourMs: row.endedHourMs ?? 0,
        rows: 1,
        promptTokens: row.computedPrompt + row.cachedPrompt,
        cachedTokens: row.cachedPrompt,
        completionTokens: row.computedCompletion,
      })),
    counters: stored.counters,
    usage: stored.usage.map((row) => ({ ...row, rows: 1, hourMs: START_MS })),
    rollups: [],
    rolledUp: [],
    billedAttempts: stored.attempts
      .filter((row) => row.unbilledReason === null)
      .map((row) => ({
        hourMs: START_MS,
        rows: 1,
        promptTokens: row.computedPrompt + row.cachedPrompt,
        cachedTokens: row.cachedPrompt,
        completionTokens: row.computedCompletion,
      })),
    billedWithoutUsage: 0,
    usageRows: stored.usage,
    attemptRows: stored.attempts,
  };
}

const differences = (stored: UsageBatch, journal: UsageBatch): ProofDifference[] =>
  differencesOf(proofSides(snapshotOf(stored), journal, RANGE));

const whole = batchOf({ usage: [usageRow("r1")], attempts: [attemptRow("r1")], counters: [counterRow()] });

describe("the proof", () => {
  it("holds for rows in the database, in the journal, and in both", () => {
    expect(differences(whole, batchOf({}))).toEqual([]);
    expect(differences(batchOf({}), whole)).toEqual([]);
    expect(differences(whole, whole)).toEqual([]);
  });

  it("holds while an attempt that ended waits for its request's end", () => {
    const reported = batchOf({
      attempts: [attemptRow("r1", { unbilledReason: "not_settled" })],
      counters: [counterRow()],
    });
    expect(differences(batchOf({}), reported)).toEqual([]);
    expect(differences(reported, whole)).toEqual([]);
  });

  it("holds when the journal corrects a stored row by a late report", () => {
    const stored = batchOf({
      usage: [usageRow("r1", { exactness: "counted" })],
      attempts: [attemptRow("r1", { endedHourMs: null, exactness: "counted" })],
    });
    const late = { attempt: attemptRow("r1", { computedCompletion: 25 }), reportedAtMs: START_MS + 2_000 };
    const journal = batchOf({ lateReports: [late], counters: [counterRow({ computedCompletion: 25 })] });
    expect(differences(stored, journal)).toEqual([]);
  });

  it("names the host, the hour and the column that differ", () => {
    const journal = batchOf({ counters: [counterRow({ requests: 2, computedCompletion: 41 })] });
    expect(differences(whole, journal)).toEqual([
      {
        sum: "attempts = host counters",
        hourMs: START_MS,
        where: "host gpu-1 epoch 7",
        column: "completionTokens",
        left: 20n,
        right: 41n,
      },
      {
        sum: "attempts = host counters",
        hourMs: START_MS,
        where: "host gpu-1 epoch 7",
        column: "rows",
        left: 1n,
        right: 2n,
      },
    ]);
  });

  it("leaves rows out that were settled after it began, with their attempts", () => {
    const later = batchOf({
      usage: [usageRow("r2", { settledAtMs: RANGE.settledUpToMs + 1 })],
      attempts: [attemptRow("r2", { backend: "static", epoch: null, endedHourMs: null })],
    });
    const sides = proofSides(snapshotOf(batchOf({})), later, RANGE);
    expect(differencesOf(sides)).toEqual([]);
    expect(sides.usage.size).toBe(0);
  });

  it("compares the export's lines with the rows, money included", () => {
    const lines: Parameters<typeof addExported>[0] = new Map();
    addExported(lines, usageRow("r1", { costNanoUsd: "20641" }));
    const sides = proofSides(snapshotOf(whole), batchOf({}), RANGE);
    expect(exportDifferences(sides, lines)).toEqual([
      { sum: "usage = export", hourMs: START_MS, where: "", column: "costNanoUsd", left: 20640n, right: 20641n },
    ]);
  });
});

async function rowsOf(stored: readonly UsageRow[], journal: UsageBatch): Promise<UsageRow[]> {
  const store = {
    usagePage: async ({ after, limit }: { after: { requestId: string } | null; limit: number }) =>
      stored.filter((row) => after === null || row.requestId > after.requestId).slice(0, limit),
    requests: async (ids: readonly string[]) => ({
      usageRows: stored.filter((row) => ids.includes(row.requestId)),
      attemptRows: [],
    }),
  };
  const rows: UsageRow[] = [];
  for await (const row of exportedRows(store, journal, { fromMs: null, toMs: null, settledUpToMs: null }))
    rows.push(row);
  return rows;
}

describe("the export", () => {
  it("puts the journal's rows in their place and gives none twice", async () => {
    const stored = [usageRow("r1"), usageRow("r3"), usageRow("r5")];
    const corrected = usageRow("r3", { settledAtMs: START_MS + 9_000, completionTokens: 21 });
    const rows = await rowsOf(stored, batchOf({ usage: [usageRow("r6"), corrected, usageRow("r0"), usageRow("r4")] }));
    expect(rows.map(({ requestId }) => requestId)).toEqual(["r0", "r1", "r3", "r4", "r5", "r6"]);
    expect(rows[2]).toEqual(corrected);
  });

  it("keeps the database's row when that is newer than the journal's", async () => {
    const newer = usageRow("r1", { settledAtMs: START_MS + 9_000 });
    expect(await rowsOf([newer], batchOf({ usage: [usageRow("r1")] }))).toEqual([newer]);
  });

  it("writes the columns of the contract, whole numbers and UTC", () => {
    const row = usageRow("r1", { costNanoUsd: "9007199254740993", model: 'a "b", c', steeringHash: null });
    const columns =
      "request_id,at,settled_at,account,project,key_id,model,backend,band,prompt_tokens,cached_tokens," +
      "completion_tokens,steering_hash,outcome,exactness,price_version,cost_nano_usd,queue_ms,ttft_ms,tpot_ms,total_ms";
    expect(csvHeader()).toBe(columns);
    expect(csvLine(row)).toBe(
      'r1,2026-01-01T00:00:00.000Z,2026-01-01T00:00:01.000Z,acme,p1,k1,"a ""b"", c",gpu-1,default,10,4,20,,completed,' +
        "exact,1,9007199254740993,0,12,3.25,80",
    );
    const line = jsonLine(row);
    expect(line).toContain('"cost_nano_usd":9007199254740993,');
    expect(Object.keys(z.looseObject({}).parse(JSON.parse(line))).join(",")).toBe(columns);
  });
});

describe("cost", () => {
  it("adds up without rounding, however small a call is (C101)", () => {
    // 0.05 dollars per million tokens is 50 nano-dollars a token.
    const price = { promptPer1k: 0, cachedPer1k: 0, completionPer1k: 50 };
    const one = costNanoUsd({ promptTokens: 0, cachedTokens: 0, completionTokens: 1 }, price);
    expect(one * 1_000_000n).toBe(50_000_000n);
  });

  it("charges cached tokens at their own price only", () => {
    const price = { promptPer1k: 7, cachedPer1k: 2, completionPer1k: 11 };
    expect(costNanoUsd({ promptTokens: 10, cachedTokens: 4, completionTokens: 3 }, price)).toBe(
      6n * 7n + 4n * 2n + 33n,
    );
  });
});
