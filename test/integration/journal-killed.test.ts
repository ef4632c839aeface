import { spawn } from "node:child_process";
import { appendFileSync, mkdirSync, rmdirSync, writeFileSync } from "node:fs";
import { once } from "node:events";
import path from "node:path";
import { pathToFileURL } from "node:url";
import { afterEach, beforeEach, describe, expect, it } from "vitest";
import { z } from "zod";
import { FileJournal } from "../../edge/node/journal.file.ts";
import { packageRoot } from "../../edge/node/package-root.ts";
import { readJournalFiles, segmentFile } from "../../edge/node/journal-files.ts";
import { temporaryFolder } from "../support/temporary-folder.ts";

const BUILT = pathToFileURL(path.join(packageRoot(), "dist/edge/node/journal.file.js")).href;

/** Appends numbered lines for ever and tells on its output which ones have left it. */
const WRITER = `
  import { FileJournal } from "${BUILT}";
  const journal = await FileJournal.open({ folder: process.argv[1], segmentBytes: 4096 });
  await journal.replay(() => undefined);
  let number = 0;
  const turn = () => {
    for (let line = 0; line < 5; line += 1) journal.append({ number: ++number });
    journal.writeOut();
    process.stdout.write(number + "\\n");
    setImmediate(turn);
  };
  turn();
`;

const lineSchema = z.object({ number: z.int() });

describe("a journal in files", () => {
  let folder: string;
  let remove: () => void;
  beforeEach(() => {
    ({ folder, remove } = temporaryFolder());
  });
  afterEach(() => remove());

  const numbers = async (): Promise<number[]> => {
    const found: number[] = [];
    await readJournalFiles(folder, (entry) => found.push(lineSchema.parse(entry).number));
    return found;
  };

  it("keeps every line that left a process which is then killed, and is free for the next one", async () => {
    const child = spawn(process.execPath, ["--input-type=module", "-e", WRITER, folder], {
      stdio: ["ignore", "pipe", "inherit"],
    });
    let told = "";
    let isRefused = false;
    child.stdout.setEncoding("utf8").on("data", (text: string) => {
      told += text;
      if (isRefused && told.split("\n").length > 200) child.kill("SIGKILL");
    });
    await expect(openWhenRunning(folder, () => told !== "")).rejects.toThrow(/used by another process/);
    isRefused = true;
    await once(child, "close");
    const last = Number(told.trimEnd().split("\n").at(-1));
    const found = await numbers();
    expect(found.length).toBeGreaterThanOrEqual(last);
    expect(found).toEqual(found.map((_, at) => at + 1));

    const next = await FileJournal.open({ folder });
    expect(next.append({ number: 0 })).toBeGreaterThan(next.segments().oldest);
    await next.close();
    expect((await numbers()).at(-1)).toBe(0);
  });

  it("skips a line that was torn, and goes on behind it", async () => {
    const journal = await FileJournal.open({ folder });
    journal.append({ number: 1 });
    await journal.close();
    appendFileSync(segmentFile(folder, 1), '{"number":2,"text":"to');
    expect(await numbers()).toEqual([1]);
    appendFileSync(segmentFile(folder, 1), '\n{"number":3}\n');
    expect(await numbers()).toEqual([1, 3]);
  });

  it("keeps lines in memory while the disk refuses them, lets nothing new in, and writes them when it can", async () => {
    const journal = await FileJournal.open({ folder });
    // A folder stands where the first segment belongs.
    mkdirSync(segmentFile(folder, 1));
    journal.append({ number: 1 });
    journal.writeOut();
    journal.append({ number: 2 });
    expect(journal.hasRoom()).toBe(false);
    await expect(journal.sync()).rejects.toThrow("EISDIR");
    rmdirSync(segmentFile(folder, 1));
    await journal.sync();
    expect(journal.hasRoom()).toBe(true);
    expect(await numbers()).toEqual([1, 2]);
    await journal.close();
  });

  it("leaves files that are not its own alone", async () => {
    writeFileSync(path.join(folder, "notes.txt"), "x");
    const journal = await FileJournal.open({ folder });
    journal.append({ number: 1 });
    await journal.release(100);
    await journal.close();
    expect(await numbers()).toEqual([1]);
  });

  it("takes the place of a process that is gone, also when its number lives on in another", async () => {
    writeFileSync(path.join(folder, "lock"), `${process.pid} 1`);
    const journal = await FileJournal.open({ folder });
    expect(journal.hasRoom()).toBe(true);
    await journal.close();
  });
});

/** Opens the journal as soon as the other process is seen to have it. */
async function openWhenRunning(folder: string, isRunning: () => boolean): Promise<FileJournal> {
  while (!isRunning()) await new Promise((resolve) => setTimeout(resolve, 10));
  return FileJournal.open({ folder });
}
