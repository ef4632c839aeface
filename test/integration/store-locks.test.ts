import { spawn, type ChildProcess } from "node:child_process";
import { once } from "node:events";
import path from "node:path";
import { createClient } from "@libsql/client";
import { afterEach, beforeEach, describe, expect, it } from "vitest";
import { nodeClock } from "../../edge/node/clock.node.ts";
import { openStore, type ClosableStore } from "../../edge/node/database.ts";
import { connectFile } from "../../edge/node/database-file.ts";
import { LibsqlStore } from "../../edge/store/store.libsql.ts";
import { keptLogger } from "../support/silent-logger.ts";
import { temporaryFolder } from "../support/temporary-folder.ts";
import { batchOf, usageRow } from "../support/usage-rows.ts";

/** Another process that takes the write lock, says so, and lets go when its input ends or after `holdMs`. */
const HOLDER = `
  import { createClient } from "@libsql/client";
  const [file, holdMs] = process.argv.slice(1);
  const client = createClient({ url: "file:" + file, timeout: 5000 });
  const transaction = await client.transaction("write");
  await transaction.execute("insert into accounts (name, created_at) values ('of the other process', 1)");
  process.stdout.write("locked\\n");
  await Promise.race([new Promise((resolve) => setTimeout(resolve, Number(holdMs))), new Promise((resolve) => process.stdin.on("end", resolve).resume())]);
  await transaction.commit();
  process.exit(0);
`;

describe("a database that another process has locked", () => {
  let folder: string;
  let remove: () => void;
  let file: string;
  let store: ClosableStore;
  let holder: ChildProcess | null;
  beforeEach(async () => {
    ({ folder, remove } = temporaryFolder());
    file = path.join(folder, "steerage.db");
    store = await openStore({ databaseUrl: `file:${file}`, clock: nodeClock, logger: keptLogger().logger });
    holder = null;
  });
  afterEach(async () => {
    holder?.kill("SIGKILL");
    await store.close();
    remove();
  });

  async function lock(holdMs: number): Promise<ChildProcess> {
    const child = spawn(process.execPath, ["--input-type=module", "-e", HOLDER, file, String(holdMs)], {
      stdio: ["pipe", "pipe", "inherit"],
    });
    holder = child;
    await once(child.stdout, "data");
    return child;
  }

  it("does not stop the event loop, answers reads meanwhile, and takes the write when it can", async () => {
    await store.record(batchOf({ usage: [usageRow("before")] }));
    const child = await lock(2_000);
    let turns = 0;
    const timer = setInterval(() => {
      turns += 1;
    }, 10);
    const writing = store.record(batchOf({ usage: [usageRow("during")] }));
    expect(await store.findKey("aaaaaaaaaaaa")).toBeNull();
    const readWhileLocked = child.exitCode === null;
    await writing;
    clearInterval(timer);
    expect(readWhileLocked).toBe(true);
    // A frozen loop would have had a handful of turns in these two seconds.
    expect(turns).toBeGreaterThan(50);
    expect((await store.requests(["before", "during"])).usageRows).toHaveLength(2);
  });

  it("is given up after the deadline with nothing left open, so that everybody can write again", async () => {
    const impatient = new LibsqlStore({
      clock: nodeClock,
      isFile: true,
      connect: () => connectFile(file, 20),
      busyDeadlineMs: 100,
    });
    const child = await lock(30_000);
    await expect(impatient.record(batchOf({ usage: [usageRow("refused")] }))).rejects.toMatchObject({
      code: "SQLITE_BUSY",
    });
    child.stdin?.end();
    await once(child, "exit");
    const other = createClient({ url: `file:${file}`, timeout: 1_000 });
    await other.execute("insert into accounts (name, created_at) values ('later', 1)");
    other.close();
    await impatient.record(batchOf({ usage: [usageRow("accepted")] }));
    expect((await impatient.requests(["refused", "accepted"])).usageRows.map(({ requestId }) => requestId)).toEqual([
      "accepted",
    ]);
    await impatient.close();
  });
});
