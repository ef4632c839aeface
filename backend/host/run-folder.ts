import { chmod, mkdtemp, readFile, rm, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import path from "node:path";

/** Sockets have about 100 bytes of path; a temporary folder longer than this is not used for them. */
const LONGEST_PARENT = 60;
const NAME = /^steerage-[0-9A-Za-z]{6}$/;

/** A fresh folder for the sockets of this host's engines, entered by this user only. */
export async function makeRunFolder(): Promise<string> {
  const parent = tmpdir().length > LONGEST_PARENT ? "/tmp" : tmpdir();
  const folder = await mkdtemp(path.join(parent, "steerage-"));
  await chmod(folder, 0o700);
  return folder;
}

/** Only such a folder is ever read as one, or removed, whatever a note says. */
export const isRunFolder = (folder: string): boolean => NAME.test(path.basename(folder));

/**
 * Notes this host's folder in `note`, one line a folder, after the one that the host before it could not remove itself,
 * and answers that one. Older ones are removed.
 */
export async function keepTwoRunFolders(note: string, folder: string): Promise<string | null> {
  const noted = (await readFile(note, "utf8").catch(() => "")).split("\n");
  const earlier = noted.filter((line) => line !== folder && isRunFolder(line));
  const last = earlier.pop() ?? null;
  for (const older of earlier) await rm(older, { recursive: true, force: true });
  await writeFile(note, last === null ? folder : `${last}\n${folder}`, { mode: 0o600 });
  return last;
}
