import { readdir, readFile } from "node:fs/promises";
import path from "node:path";

/** Where the journal of an edge lies inside its data directory. */
export const JOURNAL_FOLDER = "journal";

const SEGMENT = /^(\d{8})\.ndjson$/;

export const segmentFile = (folder: string, segment: number): string =>
  path.join(folder, `${String(segment).padStart(8, "0")}.ndjson`);

/** Numbers of the segments that exist, oldest first; none when there is no such folder. */
export async function segmentsIn(folder: string): Promise<number[]> {
  const names = await unlessMissing(readdir(folder), []);
  return names
    .map((name) => SEGMENT.exec(name)?.[1])
    .filter((number) => number !== undefined)
    .map(Number)
    .toSorted((one, other) => one - other);
}

/**
 * Reads a journal without touching it, also one that an edge is writing: a line that is not whole yet is left out, and
 * a segment that is deleted meanwhile has all its rows in the database.
 */
export async function readJournalFiles(folder: string, take: (entry: unknown, segment: number) => void): Promise<void> {
  for (const segment of await segmentsIn(folder)) await readSegment(folder, segment, (entry) => take(entry, segment));
}

/** The same for one segment; none of its lines when it is gone. */
export async function readSegment(folder: string, segment: number, take: (entry: unknown) => void): Promise<void> {
  const text = await unlessMissing(readFile(segmentFile(folder, segment), "utf8"), "");
  for (const line of text.split("\n")) {
    if (line === "") continue;
    let entry: unknown;
    try {
      entry = JSON.parse(line);
    } catch {
      // Torn by the end of the process or by a full disk; what follows it is whole again.
      continue;
    }
    take(entry);
  }
}

async function unlessMissing<Value>(reading: Promise<Value>, otherwise: Value): Promise<Value> {
  try {
    return await reading;
  } catch (thrown) {
    if (thrown instanceof Error && "code" in thrown && thrown.code === "ENOENT") return otherwise;
    throw thrown;
  }
}
