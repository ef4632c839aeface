import { readFileSync, rmSync } from "node:fs";
import { readFile, rename, rm, writeFile } from "node:fs/promises";
import path from "node:path";
import { OperatorError } from "./operator-error.ts";

const LOCK_FILE = "lock";
/** Between the making of a lock and its first byte there is an instant in which it names nobody. */
const UNNAMED_MS = 50;

/**
 * Takes a folder for this process until the returned function is called or the process ends, however it ends. A lock
 * names a process and the time it was started, so one left behind by a process that is gone holds nobody up, not even
 * when its number was given to another or its parent has not collected it yet. Rejects with OperatorError.
 */
export async function lockFolder(folder: string): Promise<() => void> {
  const file = path.join(folder, LOCK_FILE);
  const mine = `${process.pid} ${(await stateOf(process.pid))?.startTime ?? ""}`;
  for (let attempt = 0; attempt < 3; attempt += 1) {
    try {
      await writeFile(file, mine, { flag: "wx", mode: 0o600 });
      return () => unlock(file, mine);
    } catch (thrown) {
      if (!(thrown instanceof Error && "code" in thrown && thrown.code === "EEXIST")) throw thrown;
    }
    const held = await lockIn(file);
    if (held === null) continue;
    const pid = await ownerOf(held);
    if (pid !== null) throw new OperatorError(`the folder ${folder} is used by another process (${pid}).`);
    await removeLock(file, held);
  }
  throw new OperatorError(`the folder ${folder} is being taken by another process.`);
}

/** The process that has a folder locked now; null when none has. */
export async function holderOf(folder: string): Promise<number | null> {
  const held = await lockIn(path.join(folder, LOCK_FILE));
  return held === null ? null : ownerOf(held);
}

async function lockIn(file: string): Promise<string | null> {
  const text = await readFile(file, "utf8").catch(() => null);
  if (text !== "") return text;
  await new Promise((resolve) => setTimeout(resolve, UNNAMED_MS));
  return readFile(file, "utf8").catch(() => null);
}

/** Its process number while that process runs; null when it is gone. */
async function ownerOf(held: string): Promise<number | null> {
  const [number = "", startTime = ""] = held.split(" ");
  const pid = Number(number);
  if (!Number.isSafeInteger(pid) || pid <= 0 || !isThere(pid)) return null;
  const state = await stateOf(pid);
  // A system without /proc, or one that hides the processes of others: the number must do.
  if (state === null) return pid;
  return !state.ended && (startTime === "" || state.startTime === startTime) ? pid : null;
}

function isThere(pid: number): boolean {
  try {
    process.kill(pid, 0);
    return true;
  } catch (thrown) {
    return thrown instanceof Error && "code" in thrown && thrown.code === "EPERM";
  }
}

/** What /proc says of a process: one in state Z or X has ended and only waits to be collected. */
async function stateOf(pid: number): Promise<{ readonly ended: boolean; readonly startTime: string } | null> {
  const status = await readFile(`/proc/${pid}/stat`, "utf8").catch(() => null);
  if (status === null) return null;
  // The second field, a name in brackets, may hold spaces; state is the first after it, start time the twentieth.
  const fields = status.slice(status.lastIndexOf(")") + 2).split(" ");
  return { ended: fields[0] === "Z" || fields[0] === "X", startTime: fields[19] ?? "" };
}

/** Takes a left lock away, and puts it back when it turns out to be another's by now. */
async function removeLock(file: string, left: string): Promise<void> {
  const aside = `${file}.left-${process.pid}`;
  try {
    await rename(file, aside);
  } catch {
    return;
  }
  if ((await readFile(aside, "utf8")) === left) await rm(aside, { force: true });
  else await rename(aside, file);
}

function unlock(file: string, mine: string): void {
  try {
    if (readFileSync(file, "utf8") === mine) rmSync(file, { force: true });
  } catch {
    // Removed by hand: there is nothing to give back.
  }
}
