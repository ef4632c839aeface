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

/** Notes the folder in `note`, and removes the one that an earlier host noted there and could not remove itself. */
export async function keepOneRunFolder(note: string, folder: string): Promise<void> {
  const earlier = await readFile(note, "utf8").catch(() => "");
  if (earlier !== folder && NAME.test(path.basename(earlier))) await rm(earlier, { recursive: true, force: true });
  await writeFile(note, folder, { mode: 0o600 });
}
