import { execFile } from "node:child_process";
import { readdirSync, readFileSync } from "node:fs";
import path from "node:path";
import { createClient } from "@libsql/client";
import { afterAll, beforeAll, describe, expect, it } from "vitest";
import { z } from "zod";
import { parseApiKey } from "../../edge/accounts/api-key.ts";
import { FileJournal } from "../../edge/node/journal.file.ts";
import { signingKeysOf } from "../../edge/node/signing-keys.ts";
import { packageRoot } from "../../edge/node/package-root.ts";
import { temporaryFolder } from "../support/temporary-folder.ts";
import { endedAttempt, endedRequest, opened, settledRequest, START_MS } from "../support/usage-rows.ts";

const PROGRAM = path.join(packageRoot(), "dist/edge/node/main.js");

interface Ran {
  readonly code: number;
  readonly stdout: string;
  readonly stderr: string;
}

describe("the operator's commands", () => {
  const { folder, remove } = temporaryFolder();
  const data = path.join(folder, "data");
  afterAll(() => remove());

  const run = (...args: string[]): Promise<Ran> =>
    new Promise((resolve) => {
      execFile(process.execPath, [PROGRAM, ...args, "--data", data], { cwd: folder }, (error, stdout, stderr) => {
        resolve({ code: typeof error?.code === "number" ? error.code : 0, stdout, stderr });
      });
    });

  it("that only read make no database", async () => {
    for (const args of [
      ["usage", "export"],
      ["usage", "check"],
      ["keys", "list"],
      ["hosts", "revoke", "x"],
    ]) {
      const { code, stderr } = await run(...args);
      expect([code, stderr.split("\n").length, stderr]).toEqual([
        2,
        2,
        expect.stringContaining("there is no database at"),
      ]);
    }
    expect(readdirSync(folder)).toEqual([]);
  });

  it("make a key that is shown once and whose secret is kept nowhere", async () => {
    const made = await run("keys", "create", "--project", "p1", "--budget-usd", "0.01", "--band", "bulk", "--json");
    const { id, key, project } = z
      .strictObject({ id: z.string(), key: z.string(), project: z.string() })
      .parse(JSON.parse(made.stdout));
    const secret = parseApiKey(key)?.secret ?? "";
    expect([made.code, project, secret.length]).toEqual([0, "p1", 43]);
    const listed = await run("keys", "list", "--json");
    expect(JSON.parse(listed.stdout)).toMatchObject({
      id,
      project: "p1",
      account: "default",
      budget_nano_usd: "10000000",
    });
    expect((await run("keys", "revoke", id)).code).toBe(0);
    const files = readdirSync(data).map((name) => readFileSync(path.join(data, name), "latin1"));
    for (const text of [...files, listed.stdout, (await run("keys", "list")).stdout]) {
      expect(text).not.toContain(secret);
      expect(text).not.toContain(secret.slice(-12));
    }
    expect((await run("keys", "list")).stdout).toMatch(/revoked/);
  });

  it("tell with a host's token the fingerprints of the edge's keys, once there are some", async () => {
    const enrolled = z.strictObject({
      host: z.literal("gpu-1"),
      token: z.string(),
      edge_key_fingerprints: z.array(z.string()),
    });
    const enroll = async () => enrolled.parse(JSON.parse((await run("hosts", "enroll", "gpu-1", "--json")).stdout));
    expect((await enroll()).edge_key_fingerprints).toEqual([]);
    const { keys } = await signingKeysOf(data);
    const [fingerprint = ""] = keys.map(({ kid }) => kid);
    expect(fingerprint).not.toBe("");
    expect((await enroll()).edge_key_fingerprints).toEqual([fingerprint]);
    const { stdout } = await run("hosts", "enroll", "gpu-1");
    expect(stdout.split("\n")).toContain(fingerprint);
  });

  it.each([
    [["keys", "create"], "--project"],
    [["keys", "create", "--project", "a b"], "is not a name"],
    [["keys", "create", "--project", "p1", "--rpm", "many"], "--rpm"],
    [["keys", "create", "--project", "p1", "--budget-usd", "1e3"], "--budget-usd"],
    [["keys", "create", "--project", "p1", "--band", "gold"], "there is no band 'gold'"],
    [["keys", "create", "--project", "p1", "--account", "other"], "belongs to account 'default'"],
    [["keys", "revoke", "nobody"], "there is no key 'nobody'"],
    [["keys", "dance"], "dance"],
    [["hosts", "enroll", "../x"], "is not a name"],
    [["hosts", "revoke", "nobody"], "there is no host 'nobody'"],
    [["hosts", "revoke", `sk-host-${"s".repeat(43)}`], "there is no host 'sk-host-...'"],
    [["usage", "export", "--format", "xml"], "xml"],
    [["usage", "export", "--from", "2026-02-30"], "2026-02-30"],
    [["usage", "export", "--from", "2026-02-02", "--to", "2026-02-01"], "--from must be before --to"],
    [["usage", "check", "--config", "missing.yaml"], "missing.yaml"],
    [["keys", "update", "nobody", "--rpm", "3"], "there is no key 'nobody'"],
    [["keys", "update", "nobody"], "name at least one limit"],
    [["keys", "update", "nobody", "--budget-day-usd", "much"], "--budget-day-usd"],
    [["projects", "update", "nothing", "--tpm", "3"], "there is no project 'nothing'"],
    [["projects", "create", "p1"], "there is a project 'p1' already"],
    [["accounts", "update", "nothing", "--tpm", "3"], "there is no account 'nothing'"],
    [["accounts", "create", "a b"], "is not a name"],
  ])("refuse %j with one clear line", async (args, word) => {
    const { code, stdout, stderr } = await run(...args);
    expect([code, stdout]).toEqual([2, ""]);
    expect(stderr.trimEnd().split("\n")).toHaveLength(1);
    expect(stderr).toContain(word);
    expect(stderr).not.toMatch(/^\s+at /m);
  });

  it("set limits of keys, projects and accounts, change them and take them away", async () => {
    const json = async (...args: string[]): Promise<unknown> => {
      const { code, stdout, stderr } = await run(...args, "--json");
      expect([code, stderr]).toEqual([0, ""]);
      return JSON.parse(stdout.trimEnd().split("\n").at(-1) ?? "");
    };
    await json("accounts", "create", "umbrella", "--budget-month-usd", "100");
    await json("projects", "create", "p7", "--account", "umbrella", "--tpm", "9000", "--band", "bulk");
    const { id } = z
      .object({ id: z.string() })
      .parse(await json("keys", "create", "--project", "p7", "--rpm", "5", "--budget-day-usd", "0.5"));
    expect(await json("keys", "update", id, "--rpm", "none", "--budget-day-usd", "2", "--band", "bulk")).toMatchObject({
      id,
      account: "umbrella",
      rpm: null,
      budget_day_nano_usd: "2000000000",
      budget_month_nano_usd: null,
      band: "bulk",
    });
    expect(await json("projects", "update", "p7", "--rpm", "0", "--band", "none")).toMatchObject({
      project: "p7",
      rpm: 0,
      tpm: 9_000,
      band: null,
    });
    expect(await json("accounts", "update", "umbrella", "--budget-usd", "1")).toMatchObject({
      account: "umbrella",
      budget_nano_usd: "1000000000",
      budget_month_nano_usd: "100000000000",
    });
    expect((await run("keys", "list")).stdout).toContain("umbrella/p7  valid  $2 a day\n");
    expect((await run("projects", "list")).stdout).toContain("umbrella/p7  unlimited rpm, 9000 tpm\n");
    expect((await run("accounts", "list")).stdout).toContain("umbrella  $100 a month, $1 in all\n");
  });

  describe("on the usage of an edge that was killed", () => {
    beforeAll(async () => {
      const journal = await FileJournal.open({ folder: path.join(data, "journal") });
      const counter = {
        epoch: 7,
        hour: START_MS,
        requests: 2,
        computed_prompt: 12,
        cached_prompt: 8,
        computed_completion: 40,
      };
      const started = (requestId: string) => ({ requestId, attempt: 1, backend: "gpu-1", replica: "r1", epoch: 7 });
      for (const requestId of ["r1", "r2", "r3"]) {
        journal.append({ kind: "open", request: opened(requestId) });
        journal.append({ kind: "attempt", attempt: started(requestId) });
      }
      journal.append({ kind: "settle", settled: settledRequest("r1"), atMs: START_MS + 100 });
      const waiting = endedAttempt("r2", { awaitReport: true, exactness: "counted" });
      const cancelled = settledRequest("r2", { outcome: "cancelled", attempts: [waiting] });
      journal.append({ kind: "settle", settled: cancelled, atMs: START_MS + 100 });
      const ended = [endedRequest("r1"), endedRequest("r2")];
      journal.append({ kind: "report", host: "gpu-1", edge: "edge", ended, counters: [counter], atMs: START_MS + 200 });
      await journal.close();
    });

    it("export what only the journal has, leave out what runs, and change nothing", async () => {
      const before = readdirSync(path.join(data, "journal"));
      const lines = (await run("usage", "export")).stdout.trimEnd().split("\n");
      expect(lines.map((line) => z.looseObject({}).parse(JSON.parse(line)))).toMatchObject([
        {
          request_id: "r1",
          at: "2026-01-01T00:00:00.000Z",
          outcome: "completed",
          exactness: "exact",
          cost_nano_usd: 20_640,
        },
        { request_id: "r2", outcome: "cancelled", exactness: "exact", completion_tokens: 20 },
      ]);
      const csv = (await run("usage", "export", "--format", "csv", "--from", "2026-01-01", "--to", "2026-01-02"))
        .stdout;
      expect(csv.trimEnd().split("\n")).toHaveLength(3);
      expect((await run("usage", "export", "--to", "2026-01-01")).stdout).toBe("");
      expect(readdirSync(path.join(data, "journal"))).toEqual(before);
      const client = createClient({ url: `file:${path.join(data, "steerage.db")}` });
      expect((await client.execute("select count(*) as n from usage")).rows[0]?.["n"]).toBe(0);
      client.close();
    });

    it("prove the sums, and name what differs", async () => {
      const proven = await run("usage", "check");
      expect([proven.code, proven.stdout]).toEqual([0, expect.stringContaining("2 requests, 60 tokens billed")]);
      const client = createClient({ url: `file:${path.join(data, "steerage.db")}` });
      await client.execute("insert into host_counters values ('gpu-1', 'edge', 7, 1767225600000, 3, 18, 12, 61)");
      client.close();
      const { code, stdout, stderr } = await run("usage", "check");
      expect([code, stderr]).toEqual([1, "steerage: the ledger's sums differ.\n"]);
      expect(stdout).toContain(
        "2026-01-01T00:00:00.000Z  attempts = host counters (host gpu-1 epoch 7): completionTokens 40 and 61 differ by -21\n",
      );
    });

    it("name a request whose rows the database refuses", async () => {
      const journal = await FileJournal.open({ folder: path.join(data, "journal") });
      journal.append({ kind: "refused", requestId: "r1", reason: "datatype mismatch", atMs: START_MS });
      await journal.close();
      const { code, stdout } = await run("usage", "check");
      expect([code, stdout]).toEqual([
        1,
        expect.stringContaining(
          "r1  the database refuses its rows, which are only in the journal: datatype mismatch\n",
        ),
      ]);
      expect(stdout).not.toContain("r2  the database");
    });

    it("name a roll-up that differs from its rows, and derive it again", async () => {
      const client = createClient({ url: `file:${path.join(data, "steerage.db")}` });
      await client.execute(
        "insert into usage_hours values ('acme', 'p1', 'k1', 1767225600000, 'demo', 1, 10, 4, 20, 20640)",
      );
      expect((await run("usage", "check")).stdout).toContain(
        "2026-01-01T00:00:00.000Z  roll-ups = usage: costNanoUsd 20640 and 0 differ by 20640\n",
      );
      expect((await run("usage", "rollup")).stdout).toContain("1 hourly sums were wrong");
      expect((await client.execute("select count(*) as n from usage_hours")).rows[0]?.["n"]).toBe(0);
      client.close();
      expect((await run("usage", "rollup")).stdout).toContain("nothing was changed");
    });
  });
});
