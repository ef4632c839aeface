import { readdirSync, writeFileSync } from "node:fs";
import path from "node:path";
import { createClient } from "@libsql/client";
import { afterEach, beforeEach, describe, expect, it } from "vitest";
import { nodeClock } from "../../edge/node/clock.node.ts";
import { migrateDatabase, openStore } from "../../edge/node/database.ts";
import { connectFile } from "../../edge/node/database-file.ts";
import { OperatorError } from "../../edge/node/operator-error.ts";
import { readMigrations } from "../../edge/node/migration-files.ts";
import { migrate, MigrationRefused, type Migration } from "../../edge/store/migrations.ts";
import { keptLogger } from "../support/silent-logger.ts";
import { temporaryFolder } from "../support/temporary-folder.ts";

const step = (position: number, ...statements: string[]): Migration => ({
  position,
  tag: `000${position}_step`,
  statements,
});

const isCopy = (name: string): boolean => name.includes("backup");

describe("migrations", () => {
  let folder: string;
  let remove: () => void;
  let file: string;
  const { logger } = keptLogger();
  const options = () => ({ databaseUrl: `file:${file}`, clock: nodeClock, logger });
  beforeEach(() => {
    ({ folder, remove } = temporaryFolder());
    file = path.join(folder, "steerage.db");
  });
  afterEach(() => remove());

  const FIRST = step(
    0,
    "create table parents (id integer primary key)",
    "create table children (id integer primary key, parent integer references parents (id))",
    "insert into parents values (1)",
    "insert into children values (1, 1)",
  );

  async function run(list: readonly Migration[], backUp = async (): Promise<void> => undefined) {
    const client = await connectFile(file);
    try {
      const report = await migrate(client, list, { nowMs: 1, backUp });
      const { rows } = await client.execute("pragma foreign_keys");
      return { ...report, foreignKeys: Number(rows[0]?.["foreign_keys"]) };
    } finally {
      client.close();
    }
  }

  it("are applied once, also when many processes start together", async () => {
    const reports = await Promise.all(Array.from({ length: 4 }, () => migrateDatabase(options())));
    const applied = reports.flatMap((report) => report.applied);
    expect(applied).toEqual((await readMigrations()).map(({ tag }) => tag));
    expect((await migrateDatabase(options())).applied).toEqual([]);
  });

  it("copy a database that holds something, and only that", async () => {
    let copies = 0;
    const backUp = async (): Promise<void> => {
      copies += 1;
    };
    expect((await run([FIRST], backUp)).wasEmpty).toBe(true);
    expect(copies).toBe(0);
    await run([FIRST], backUp);
    expect(copies).toBe(0);
    await run([FIRST, step(1, "create table more (id integer)")], backUp);
    expect(copies).toBe(1);
  });

  it("leave a copy beside the file with everything that was in it", async () => {
    await migrateDatabase(options(), [FIRST]);
    await migrateDatabase(options(), [FIRST, step(1, "delete from children")]);
    const copies = readdirSync(folder).filter(isCopy);
    expect(copies).toEqual([expect.stringMatching(/^steerage\.db\.backup-\d{8}T\d{6}Z$/)]);
    const copy = createClient({ url: `file:${path.join(folder, copies[0] ?? "")}` });
    expect((await copy.execute("select count(*) as n from children")).rows[0]?.["n"]).toBe(1);
    copy.close();
  });

  it("happen where the database is worked on, and the log of who opened it tells of them", async () => {
    const all = await readMigrations();
    await migrateDatabase(options(), all.slice(0, -1));
    const { logger: told, lines } = keptLogger();
    const store = await openStore({ ...options(), logger: told });
    await store.close();
    const last = all.at(-1)?.tag;
    expect(lines.map((line): unknown => JSON.parse(line))).toMatchObject([
      {
        level: "info",
        message: "the database was copied before its migration",
        copy: readdirSync(folder).find(isCopy),
      },
      { level: "info", message: "the database was migrated", to: last },
    ]);
  });

  it("refuse a database of a newer program, with a message that says what to do", async () => {
    await migrateDatabase(options());
    const client = await connectFile(file);
    await client.execute("insert into steerage_migrations values (99, '0099_of_tomorrow', 1)");
    client.close();
    await expect(openStore(options())).rejects.toBeInstanceOf(OperatorError);
    await expect(migrateDatabase(options())).rejects.toThrow(
      /newer than this program: .*'0099_of_tomorrow'.*Start the newer version, or restore the backup/,
    );
  });

  it("run with foreign keys off, which they are inside the transaction too, and on afterwards", async () => {
    await run([FIRST]);
    const rebuild = step(
      1,
      "create table seen as select foreign_keys from pragma_foreign_keys",
      "create table parents_new (id integer primary key, name text)",
      "insert into parents_new (id) select id from parents",
      "drop table parents", // allowed: this test's own table
      "alter table parents_new rename to parents",
    );
    expect((await run([FIRST, rebuild])).foreignKeys).toBe(1);
    const client = createClient({ url: `file:${file}` });
    expect((await client.execute("select foreign_keys from seen")).rows[0]?.["foreign_keys"]).toBe(0);
    expect((await client.execute("select count(*) as n from children")).rows[0]?.["n"]).toBe(1);
    client.close();
  });

  it("change nothing when a row would point nowhere, or when a statement fails", async () => {
    await run([FIRST]);
    await expect(
      run([FIRST, step(1, "create table other (id integer)", "delete from parents")]),
    ).rejects.toBeInstanceOf(MigrationRefused);
    await expect(run([FIRST, step(1, "create table other (id integer)", "nonsense")])).rejects.toThrow(/syntax/);
    const client = createClient({ url: `file:${file}` });
    const { rows } = await client.execute("select name from sqlite_master where name in ('other', 'parents')");
    expect(rows.map((row) => row["name"])).toEqual(["parents"]);
    client.close();
    expect((await run([FIRST, step(1, "create table other (id integer)")])).applied).toEqual(["0001_step"]);
  });

  it("derive the hourly roll-ups of the usage that is there already", async () => {
    const all = await readMigrations();
    const rollups = all.findIndex(({ tag }) => tag.endsWith("limits_and_rollups"));
    await run(all.slice(0, rollups));
    const client = await connectFile(file);
    try {
      const row = (id: string, at: number, cost: number): string =>
        `insert into usage values ('${id}', null, ${at}, ${at}, 'a', 'p', 'k', 'm', 'b', 'default', 3, 1, 2, null, ` +
        `'completed', 'exact', 1, 1, 1, 1, ${cost}, 0, 1, 1.0, 5)`;
      for (const sql of [row("r1", 7_200_001, 5), row("r2", 7_200_002, 6), row("r3", 3_599_999, 7)]) {
        await client.execute(sql);
      }
    } finally {
      client.close();
    }
    const store = await openStore(options());
    try {
      expect(await store.usageHours({ fromMs: null, toMs: null })).toMatchObject([
        { hourMs: 0, rows: 1, promptTokens: 3, costNanoUsd: "7" },
        { hourMs: 7_200_000, rows: 2, promptTokens: 6, cachedTokens: 2, completionTokens: 4, costNanoUsd: "11" },
      ]);
      expect(await store.rollUp({ fromMs: null, toMs: null })).toBe(0);
    } finally {
      await store.close();
    }
  });

  it("of this package drop no table without saying why that is safe", async () => {
    for (const { tag, statements } of await readMigrations()) {
      for (const statement of statements) {
        const isAllowed = !/drop\s+table/i.test(statement) || statement.includes("-- allowed:");
        expect(isAllowed, `${tag}: ${statement}`).toBe(true);
      }
    }
  });

  it("say clearly when the file is no database", async () => {
    writeFileSync(file, "this is a text of more than sixteen bytes, and no database at all ".repeat(50));
    await expect(migrateDatabase(options())).rejects.toThrow(/is not an SQLite file/);
  });
});
