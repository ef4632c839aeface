import { mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import path from "node:path";
import { createClient } from "@libsql/client/web";
import { afterAll, beforeAll, describe, expect, it } from "vitest";
import { HranaServer } from "../support/hrana-server.ts";

describe("the libSQL server that tests use", () => {
  const folder = mkdtempSync(path.join(tmpdir(), "steerage-hrana-"));
  let server: HranaServer;
  beforeAll(async () => {
    server = await HranaServer.start({ file: path.join(folder, "a.db"), token: "t" });
  });
  afterAll(async () => {
    await server.stop();
    rmSync(folder, { recursive: true, force: true });
  });
  const client = () => createClient({ url: server.url, authToken: "t", intMode: "bigint" });

  it("answers the web client: statements, batches, sequences and transactions that roll back", async () => {
    const db = client();
    await db.executeMultiple("CREATE TABLE t (a INTEGER PRIMARY KEY, b TEXT); CREATE INDEX i ON t (b);");
    await db.batch(
      [
        { sql: "INSERT INTO t VALUES (?, ?)", args: [9_007_199_254_740_993n, "x"] },
        { sql: "INSERT INTO t VALUES (:a, :b)", args: { a: 2, b: null } },
      ],
      "write",
    );
    const transaction = await db.transaction("write");
    await transaction.execute("INSERT INTO t VALUES (3, 'gone')");
    await transaction.rollback();
    const { rows } = await db.execute("SELECT a, b FROM t ORDER BY a");
    expect(rows.map((row) => [row["a"], row["b"]])).toEqual([
      [2n, null],
      [9_007_199_254_740_993n, "x"],
    ]);
    await expect(db.execute("INSERT INTO t VALUES (2, 'again')")).rejects.toThrow(/UNIQUE/);
    await expect(db.batch(["INSERT INTO t VALUES (4, 'a')", "INSERT INTO t VALUES (2, 'b')"], "write")).rejects.toThrow(
      /UNIQUE/,
    );
    expect((await db.execute("SELECT count(*) AS n FROM t")).rows[0]?.["n"]).toBe(2n);
    db.close();
  });

  it("refuses a wrong token", async () => {
    const db = createClient({ url: server.url, authToken: "wrong" });
    await expect(db.execute("SELECT 1")).rejects.toThrow(/not allowed/);
  });
});
