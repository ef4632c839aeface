import { NO_SCOPE_LIMITS } from "../../edge/ports/limits.ts";
import { afterEach, beforeEach, describe, expect, it } from "vitest";
import { StoreConflict, type NewKey } from "../../edge/ports/key-store.ts";
import type { StoredPrice } from "../../edge/ports/usage-store.ts";
import { exportedRows } from "../../edge/usage/export.ts";
import { differencesOf, proofSides } from "../../edge/usage/proof.ts";
import type { Store } from "../../edge/store/store.libsql.ts";
import { attemptRow, batchOf, counterRow, HOUR_MS, START_MS, usageRow } from "../support/usage-rows.ts";

export interface StoreCase {
  readonly name: string;
  /** A migrated, empty store, and what to do with it after the test. */
  readonly create: () => Promise<{ store: Store; dispose: () => Promise<void> }>;
}

const newKey = (more: Partial<NewKey> = {}): NewKey => ({
  keyId: "aaaaaaaaaaaa",
  secretSha256: "f".repeat(64),
  project: "p1",
  account: null,
  limits: { ...NO_SCOPE_LIMITS, requestsPerMinute: 5, budgetNanoUsd: "9007199254740993" },
  band: "bulk",
  createdAtMs: START_MS,
  ...more,
});

const price = (completionPer1k: number): StoredPrice[] => [
  { model: null, promptPer1k: 1, cachedPer1k: 1, completionPer1k },
  { model: "demo", promptPer1k: 2, cachedPer1k: 1, completionPer1k: 3 },
];

const EVERYTHING = { fromMs: null, toMs: null, settledUpToMs: START_MS + 100 * HOUR_MS };

/** What every adapter of the store must do. */
export function storeContract({ name, create }: StoreCase): void {
  describe(`the store (${name})`, () => {
    let store: Store;
    let dispose: () => Promise<void>;
    beforeEach(async () => {
      ({ store, dispose } = await create());
    });
    afterEach(() => dispose());

    it("records a batch of any size, every row with its own values, and the same again without a double", async () => {
      const names = Array.from({ length: 150 }, (_, place) => `r${String(place).padStart(3, "0")}`);
      const batch = batchOf({
        usage: names.map((id, place) => usageRow(id, { completionTokens: place, band: `b${place % 7}` })),
        attempts: names.map((id, place) => attemptRow(id, { computedCompletion: place })),
      });
      await store.record(batch);
      await store.record(batch);
      const page = await store.usagePage({ fromMs: null, toMs: null, after: null, limit: 1_000 });
      expect(page).toEqual(batch.usage);
      const { attemptRows } = await store.requests(names);
      expect(attemptRows.toSorted((one, other) => (one.requestId < other.requestId ? -1 : 1))).toEqual(batch.attempts);
    });

    it("keeps a key with its limits, money larger than a float holds included", async () => {
      expect(await store.findKey("aaaaaaaaaaaa")).toBeNull();
      const created = await store.createKey(newKey());
      expect(created).toEqual({
        keyId: "aaaaaaaaaaaa",
        secretSha256: "f".repeat(64),
        account: "default",
        project: "p1",
        highestBand: "bulk",
        keyLimits: { ...NO_SCOPE_LIMITS, requestsPerMinute: 5, budgetNanoUsd: "9007199254740993" },
        projectLimits: NO_SCOPE_LIMITS,
        accountLimits: NO_SCOPE_LIMITS,
        createdAtMs: START_MS,
        revokedAtMs: null,
      });
      expect(await store.findKey("aaaaaaaaaaaa")).toEqual(created);
      expect(await store.listKeys()).toEqual([created]);
    });

    it("keeps a project in its account", async () => {
      await store.createKey(newKey({ account: "acme" }));
      await expect(store.createKey(newKey({ keyId: "b".repeat(12), account: "other" }))).rejects.toBeInstanceOf(
        StoreConflict,
      );
      const second = await store.createKey(newKey({ keyId: "c".repeat(12) }));
      expect(second.account).toBe("acme");
      expect(await store.findKey("b".repeat(12))).toBeNull();
    });

    it("grows the key revision whenever a key or host changes", async () => {
      const revisions = [await store.keyRevision()];
      await store.createKey(newKey());
      revisions.push(await store.keyRevision());
      expect(await store.revokeKey("aaaaaaaaaaaa", START_MS + 5)).toBe(true);
      revisions.push(await store.keyRevision());
      await store.enrollHost("gpu-1", "1".repeat(64), START_MS);
      revisions.push(await store.keyRevision());
      expect(await store.revokeHost("gpu-1", START_MS)).toBe(true);
      revisions.push(await store.keyRevision());
      expect(revisions).toEqual([0, 1, 2, 3, 4]);
      expect(await store.revokeKey("nope", START_MS)).toBe(false);
      expect(await store.revokeHost("nope", START_MS)).toBe(false);
      expect(await store.keyRevision()).toBe(4);
    });

    it("keeps the time of the first revocation", async () => {
      await store.createKey(newKey());
      await store.revokeKey("aaaaaaaaaaaa", START_MS + 5);
      await store.revokeKey("aaaaaaaaaaaa", START_MS + 9);
      expect((await store.findKey("aaaaaaaaaaaa"))?.revokedAtMs).toBe(START_MS + 5);
    });

    it("gives an enrolled host a new token that ends the old one", async () => {
      await store.enrollHost("gpu-1", "1".repeat(64), START_MS);
      await store.revokeHost("gpu-1", START_MS + 1);
      const again = await store.enrollHost("gpu-1", "2".repeat(64), START_MS + 2);
      expect(await store.findHostByToken("1".repeat(64))).toBeNull();
      expect(await store.findHostByToken("2".repeat(64))).toEqual(again);
      expect(again.revokedAtMs).toBeNull();
      expect(await store.listHosts()).toHaveLength(1);
    });

    it("takes a batch of nothing, by which an edge asks whether it is there", async () => {
      await expect(store.record(batchOf({}))).resolves.toBeUndefined();
    });

    it("records a batch once, however often it is written", async () => {
      const batch = batchOf({
        usage: [usageRow("r1"), usageRow("r2", { costNanoUsd: "9007199254740993", steeringHash: "abc" })],
        attempts: [attemptRow("r1"), attemptRow("r2", { attempt: 2 })],
        counters: [counterRow({ requests: 2 })],
      });
      await store.record(batch);
      await store.record(batch);
      expect(await store.usagePage({ fromMs: null, toMs: null, after: null, limit: 10 })).toEqual(batch.usage);
      expect(await store.requests(["r1", "r2", "r3"])).toEqual({ usageRows: batch.usage, attemptRows: batch.attempts });
    });

    it("never goes back from what is known later", async () => {
      const later = usageRow("r1", { settledAtMs: START_MS + 9_000, completionTokens: 21 });
      await store.record(batchOf({ usage: [later], attempts: [attemptRow("r1", { computedCompletion: 21 })] }));
      await store.record(
        batchOf({
          usage: [usageRow("r1")],
          attempts: [attemptRow("r1", { endedHourMs: null, exactness: "counted" })],
          counters: [counterRow({ requests: 3 })],
        }),
      );
      await store.record(
        batchOf({ attempts: [attemptRow("r1", { unbilledReason: "not_settled" })], counters: [counterRow()] }),
      );
      const { usageRows, attemptRows } = await store.requests(["r1"]);
      expect(usageRows).toEqual([later]);
      expect(attemptRows).toEqual([attemptRow("r1", { computedCompletion: 21 })]);
      const snapshot = await store.proofSnapshot({ ...EVERYTHING, requestIds: [] });
      expect(snapshot.counters).toEqual([counterRow({ requests: 3 })]);
    });

    it("corrects both rows by a report that comes late, and keeps one of an unknown request", async () => {
      await store.record(
        batchOf({
          usage: [usageRow("r1", { exactness: "counted" })],
          attempts: [attemptRow("r1", { endedHourMs: null, exactness: "counted" })],
        }),
      );
      const reported = attemptRow("r1", { computedPrompt: 5, computedCompletion: 23 });
      const foreign = attemptRow("r1", { backend: "gpu-2", computedCompletion: 999 });
      const lateReports = [reported, foreign, attemptRow("r9")].map((attempt) => ({
        attempt,
        reportedAtMs: START_MS + 5_000,
      }));
      for (let time = 0; time < 2; time += 1) await store.record(batchOf({ lateReports }));
      const { usageRows, attemptRows } = await store.requests(["r1", "r9"]);
      expect(usageRows).toEqual([
        usageRow("r1", {
          promptTokens: 9,
          completionTokens: 23,
          costNanoUsd: String(5 * 100 + 4 * 10 + 23 * 1_000),
          settledAtMs: START_MS + 5_000,
        }),
      ]);
      expect(attemptRows).toEqual([reported, attemptRow("r9", { unbilledReason: "unknown_request" })]);
    });

    it("exports every row of a period once, in order, half open", async () => {
      const rows = Array.from({ length: 2_345 }, (_, at) =>
        usageRow(`r${String(at).padStart(5, "0")}`, { atMs: START_MS + Math.floor(at / 3) }),
      );
      await store.record(batchOf({ usage: rows.toReversed() }));
      const ids = async (fromMs: number | null, toMs: number | null): Promise<string[]> => {
        const found: string[] = [];
        const range = { fromMs, toMs, settledUpToMs: null };
        for await (const row of exportedRows(store, batchOf({}), range)) found.push(row.requestId);
        return found;
      };
      expect(await ids(null, null)).toEqual(rows.map(({ requestId }) => requestId));
      const middle = START_MS + 100;
      expect([...(await ids(null, middle)), ...(await ids(middle, null))]).toHaveLength(rows.length);
      expect((await ids(middle, null))[0]).toBe("r00300");
    });

    it("proves its sums, and finds a row that was touched", async () => {
      await store.record(
        batchOf({
          usage: [
            usageRow("r1", { atMs: START_MS + 12_345 }),
            usageRow("r2", { atMs: START_MS + HOUR_MS }),
            usageRow("r3"),
          ],
          attempts: [
            attemptRow("r1", { attempt: 1, unbilledReason: "retry", computedCompletion: 3 }),
            attemptRow("r1", { attempt: 2 }),
            attemptRow("r2", { backend: "static", epoch: null, endedHourMs: null }),
            attemptRow("r3"),
          ],
          counters: [counterRow({ requests: 3, computedPrompt: 18, cachedPrompt: 12, computedCompletion: 43 })],
        }),
      );
      const differences = async () => {
        const snapshot = await store.proofSnapshot({ ...EVERYTHING, requestIds: [] });
        expect(snapshot.billedWithoutUsage).toBe(0);
        return differencesOf(proofSides(snapshot, batchOf({}), EVERYTHING));
      };
      expect(await differences()).toEqual([]);
      await store.record(batchOf({ usage: [usageRow("r3", { completionTokens: 21, settledAtMs: START_MS + 2_000 })] }));
      expect(await differences()).toEqual([
        {
          sum: "usage = billed attempts",
          hourMs: START_MS,
          where: "",
          column: "completionTokens",
          left: 41n,
          right: 40n,
        },
      ]);
    });

    it("adds up what every key has cost, in all and since the beginning of month and day", async () => {
      const [yesterday, lastMonth] = [START_MS - 24 * HOUR_MS, START_MS - 40 * 24 * HOUR_MS];
      await store.record(
        batchOf({
          usage: [
            usageRow("r1", { costNanoUsd: "9007199254740993" }),
            usageRow("r2", { costNanoUsd: "1", model: "other" }),
            usageRow("r3", { costNanoUsd: "20", atMs: yesterday }),
            usageRow("r4", { costNanoUsd: "300", atMs: lastMonth }),
            usageRow("r5", { keyId: "k2", account: "umbrella", costNanoUsd: "5" }),
          ],
        }),
      );
      const periods = { dayStartMs: START_MS, monthStartMs: yesterday };
      const first = {
        account: "acme",
        project: "p1",
        keyId: "k1",
        totalNanoUsd: "9007199254741314",
        monthNanoUsd: "9007199254741014",
        dayNanoUsd: "9007199254740994",
      };
      expect(await store.spent({ ...periods, account: null })).toEqual([
        first,
        {
          account: "umbrella",
          project: "p1",
          keyId: "k2",
          totalNanoUsd: "5",
          monthNanoUsd: "5",
          dayNanoUsd: "5",
        },
      ]);
      expect(await store.spent({ ...periods, account: "acme" })).toEqual([first]);
    });

    it("keeps the hourly roll-ups with every row, repeated and corrected ones included, and derives them again", async () => {
      const rows = [
        usageRow("r1"),
        usageRow("r2", { atMs: START_MS + 5 }),
        usageRow("r3", { atMs: START_MS + HOUR_MS }),
      ];
      const corrected = usageRow("r1", { settledAtMs: START_MS + 9_000, completionTokens: 33, costNanoUsd: "77" });
      for (const batch of [rows, rows, [corrected], rows]) await store.record(batchOf({ usage: batch }));
      const [plain, hours] = [usageRow("r2"), await store.usageHours({ fromMs: null, toMs: null })];
      const common = { account: "acme", project: "p1", keyId: "k1", model: plain.model };
      expect(hours).toEqual([
        {
          ...common,
          hourMs: START_MS,
          rows: 2,
          promptTokens: 2 * plain.promptTokens,
          cachedTokens: 2 * plain.cachedTokens,
          completionTokens: 33 + plain.completionTokens,
          costNanoUsd: (77n + BigInt(plain.costNanoUsd)).toString(),
        },
        {
          ...common,
          hourMs: START_MS + HOUR_MS,
          rows: 1,
          promptTokens: plain.promptTokens,
          cachedTokens: plain.cachedTokens,
          completionTokens: plain.completionTokens,
          costNanoUsd: plain.costNanoUsd,
        },
      ]);
      expect(await store.usageHours({ fromMs: START_MS + 1, toMs: null })).toEqual([hours[1]]);
      expect(await store.rollUp({ fromMs: null, toMs: null })).toBe(0);
      expect(await store.usageHours({ fromMs: null, toMs: null })).toEqual(hours);
    });

    it("changes limits of keys, projects and accounts, each at once for the keys below", async () => {
      await store.createKey(newKey({ account: "acme" }));
      const revision = await store.keyRevision();
      expect(
        await store.updateKey("aaaaaaaaaaaa", {
          limits: { requestsPerMinute: null, budgetDayNanoUsd: "7" },
          band: null,
        }),
      ).toMatchObject({
        highestBand: null,
        keyLimits: { ...NO_SCOPE_LIMITS, budgetNanoUsd: "9007199254740993", budgetDayNanoUsd: "7" },
      });
      await store.updateProject("p1", { limits: { tokensPerMinute: 9 }, band: "bulk" });
      await store.updateAccount("acme", { limits: { budgetMonthNanoUsd: "0" } });
      expect(await store.keyRevision()).toBe(revision + 3);
      expect(await store.findKey("aaaaaaaaaaaa")).toMatchObject({
        highestBand: "bulk",
        projectLimits: { ...NO_SCOPE_LIMITS, tokensPerMinute: 9 },
        accountLimits: { ...NO_SCOPE_LIMITS, budgetMonthNanoUsd: "0" },
      });
      expect(await store.updateKey("nope", { limits: {} })).toBeNull();
      expect(await store.updateProject("nope", { limits: {} })).toBeNull();
      expect(await store.updateAccount("nope", { limits: {} })).toBeNull();
    });

    it("makes projects and accounts with limits, once", async () => {
      const limits = { ...NO_SCOPE_LIMITS, requestsPerMinute: 3, budgetMonthNanoUsd: "12" };
      const account = { account: "acme", limits, createdAtMs: START_MS };
      const project = { project: "p9", account: "acme", limits, band: "bulk", createdAtMs: START_MS };
      expect(await store.createAccount(account)).toEqual(account);
      expect(await store.createProject(project)).toEqual(project);
      expect(await store.createProject({ ...project, project: "p8", account: null })).toMatchObject({
        account: "default",
      });
      await expect(store.createAccount(account)).rejects.toBeInstanceOf(StoreConflict);
      await expect(store.createProject(project)).rejects.toBeInstanceOf(StoreConflict);
      expect((await store.listAccounts()).map((one) => one.account)).toEqual(["acme", "default"]);
      expect(await store.listProjects()).toEqual([{ ...project, project: "p8", account: "default" }, project]);
    });

    it("numbers price lists, a new one for every change", async () => {
      expect(await store.priceVersion(price(1), START_MS)).toBe(1);
      expect(await store.priceVersion(price(1).toReversed(), START_MS)).toBe(1);
      expect(await store.priceVersion(price(2), START_MS)).toBe(2);
      expect(await store.priceVersion(price(1), START_MS)).toBe(3);
    });

    describe("first answers by Idempotency-Key", () => {
      const key = { project: "p1", keySha256: "a".repeat(64) };
      const claim = { ...key, fingerprint: "f1", holder: "h1", requestId: "r1", leaseMs: 60_000 };
      const answer = { requestId: "r1", status: 200, headers: { "content-type": "text/plain" }, body: "mañana" };
      const term = { maxBytes: 20, keepMs: 60_000 };
      const bounds = { maxKeys: 2 };

      it("are claimed by one of many at once, and given to all after it", async () => {
        const decisions = await Promise.all(
          Array.from({ length: 5 }, (_, at) => store.claimAnswer({ ...claim, holder: `h${at}` }, bounds)),
        );
        expect(decisions.map(({ kind }) => kind).toSorted()).toEqual([
          "claimed",
          ...Array.from({ length: 4 }, () => "running"),
        ]);
        const holder = `h${decisions.findIndex(({ kind }) => kind === "claimed")}`;
        await store.keepAnswer({ ...key, holder: "another" }, answer, term);
        expect(await store.claimAnswer({ ...claim, requestId: "r2" }, bounds)).toEqual({ kind: "running" });
        await store.keepAnswer({ ...key, holder }, answer, term);
        expect(await store.claimAnswer(claim, bounds)).toEqual({ kind: "kept", answer });
        expect(await store.claimAnswer({ ...claim, fingerprint: "f2" }, bounds)).toEqual({ kind: "different" });
        expect(await store.claimAnswer({ ...claim, project: "p2" }, bounds)).toEqual({ kind: "claimed" });
      });

      it("are free again when their claim was dropped, or not renewed by a process that died", async () => {
        const next = { ...claim, requestId: "r2" };
        await store.claimAnswer(claim, bounds);
        await store.dropClaim({ ...key, holder: "another" });
        expect(await store.claimAnswer(next, bounds)).toEqual({ kind: "running" });
        await store.dropClaim({ ...key, holder: "h1" });
        expect(await store.claimAnswer(next, bounds)).toEqual({ kind: "claimed" });
        await store.renewClaims("h1", -1);
        const other = { ...claim, holder: "h2", fingerprint: "f2" };
        expect(await store.claimAnswer(other, bounds)).toEqual({ kind: "claimed" });
        await store.renewClaims("h1", -1);
        expect(await store.claimAnswer({ ...next, fingerprint: "f2" }, bounds)).toEqual({ kind: "running" });
      });

      it("know a claim again whose answer got lost on its way", async () => {
        await store.claimAnswer(claim, bounds);
        expect(await store.claimAnswer(claim, bounds)).toEqual({ kind: "claimed" });
        expect(await store.claimAnswer({ ...claim, requestId: "r2" }, bounds)).toEqual({ kind: "running" });
      });

      it("are bounded in number and in bytes, and forgotten when their time is over", async () => {
        const other = { ...claim, keySha256: "b".repeat(64) };
        await store.claimAnswer(claim, bounds);
        await store.keepAnswer({ ...key, holder: "h1" }, { ...answer, body: "é".repeat(8) }, term);
        await store.claimAnswer(other, bounds);
        await store.keepAnswer({ ...other, holder: "h1" }, { ...answer, body: "x".repeat(5) }, term);
        expect(await store.claimAnswer(other, bounds)).toMatchObject({ kind: "kept", answer: { body: null } });
        const third = { ...claim, keySha256: "c".repeat(64) };
        expect(await store.claimAnswer(third, bounds)).toEqual({ kind: "full" });
        await store.forgetAnswers();
        expect(await store.claimAnswer(third, bounds)).toEqual({ kind: "full" });
        await store.renewClaims("h1", 60_000);
        expect(await store.claimAnswer(claim, bounds)).toMatchObject({ kind: "kept" });
        const second = { ...claim, project: "p2" };
        await store.claimAnswer(second, { maxKeys: 1 });
        await store.keepAnswer({ ...second, holder: "h1" }, answer, { ...term, keepMs: -1 });
        expect(await store.claimAnswer({ ...third, project: "p2" }, { maxKeys: 1 })).toEqual({ kind: "full" });
        await store.forgetAnswers();
        expect(await store.claimAnswer({ ...third, project: "p2" }, { maxKeys: 1 })).toEqual({ kind: "claimed" });
      });
    });

    it("takes many calls at once", async () => {
      await Promise.all(
        Array.from({ length: 30 }, (_, at) => store.createKey(newKey({ keyId: String(at).padStart(12, "k") }))),
      );
      expect(await store.listKeys()).toHaveLength(30);
      expect(await store.keyRevision()).toBe(30);
    });
  });
}
