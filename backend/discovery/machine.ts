import { readFile, statfs } from "node:fs/promises";
import { freemem, totalmem } from "node:os";

export interface Amount {
  readonly total_bytes: number;
  readonly free_bytes: number;
}

/** Main memory; free means what could be had without swapping, caches included, where the system says. */
export async function mainMemory(): Promise<Amount> {
  let free = freemem();
  try {
    const kib = /^MemAvailable:\s+(\d+) kB$/m.exec(await readFile("/proc/meminfo", "utf8"))?.[1];
    if (kib !== undefined) free = Number(kib) * 1_024;
  } catch {
    // Not Linux: the coarse number stands.
  }
  return { total_bytes: totalmem(), free_bytes: free };
}

/** The file system of a folder; null when it cannot be asked. */
export async function diskOf(folder: string): Promise<Amount | null> {
  try {
    const { bsize, blocks, bavail } = await statfs(folder);
    return { total_bytes: bsize * blocks, free_bytes: bsize * bavail };
  } catch {
    return null;
  }
}
