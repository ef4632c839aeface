import { readFile, rm, writeFile } from "node:fs/promises";
import { rmSync } from "node:fs";
import path from "node:path";
import { OperatorError } from "./operator-error.ts";

/**
 * Takes a folder for this process until the returned function is called or the process ends, however it ends. A lock
 * names a process and the time it was started, so one left behind by a process that is gone holds nobody up, not even
 * when its number was given to another.
 */
export async function lockFolder(folder: string): Promise<() => void> {
  const file = path.join(folder, "lock");
  const mine = await identityOf(process.pid);
  for (let attempt = 0; attempt < 2; attempt += 1) {
    try {
      await writeFile(file, mine, { flag: "wx", mode: 0o600 });
      let isHeld = true;
      return () => {
        if (isHeld) rmSync(file, { force: true });
        isHeld = false;
      };
    } catch (thrown) {
      if (!(thrown instanceof Error && "code" in thrown && thrown.code === "EEXIST")) throw thrown;
    }
    const holder = await readFile(file, "utf8").catch(() => "");
    const pid = Number(holder.split(" ")[0]);
    if (Number.isSafeInteger(pid) && pid > 0 && isAlive(pid) && (await identityOf(pid)) === holder) {
      throw new OperatorError(`the folder ${folder} is used by another process (${pid}).`);
    }
    await rm(file, { force: true });
  }
  throw new OperatorError(`the folder ${folder} is being taken by another process.`);
}

function isAlive(pid: number): boolean {
  try {
    process.kill(pid, 0);
    return true;
  } catch (thrown) {
    return thrown instanceof Error && "code" in thrown && thrown.code === "EPERM";
  }
}

/** Number and start time of a process; the latter only where the system has /proc. */
async function identityOf(pid: number): Promise<string> {
  const status = await readFile(`/proc/${pid}/stat`, "utf8").catch(() => "");
  // The second field, a name in brackets, may hold spaces; start time is the twentieth after it.
  const startTime = status.slice(status.lastIndexOf(")") + 2).split(" ")[19] ?? "";
  return `${pid} ${startTime}`;
}
