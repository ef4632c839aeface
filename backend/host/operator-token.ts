import { randomBytes } from "node:crypto";
import { readFile, writeFile } from "node:fs/promises";
import { randomBase62 } from "../../shared/ids.ts";

const TOKEN_LENGTH = 43;

/**
 * What operators of this machine show to the host: a file in its data folder that only its user can read, made when it
 * is first needed. Whoever can read it could change the host's configuration as well.
 */
export async function operatorToken(file: string): Promise<string> {
  const made = `sk-operator-${randomBase62(TOKEN_LENGTH, randomBytes)}`;
  try {
    await writeFile(file, `${made}\n`, { mode: 0o600, flag: "wx" });
    return made;
  } catch (thrown) {
    if (!(thrown instanceof Error && "code" in thrown && thrown.code === "EEXIST")) throw thrown;
  }
  const kept = (await readFile(file, "utf8")).trim();
  if (kept === "") throw new Error(`${file} is empty; delete it, and a new one is made`);
  return kept;
}
