import { randomUUID } from "node:crypto";
import { mkdir, readFile, rename, writeFile } from "node:fs/promises";
import path from "node:path";
import type { EdgeIdentity } from "../ports/edge-store.ts";
import { OperatorError } from "./operator-error.ts";

const FORM = /^[0-9a-f-]{36}$/;

/**
 * Who this process is among the edges of its database. The data directory has an id of its own, `DATA/edge-id`: an edge
 * that starts again with it is the same one, and may have its name at once.
 */
export async function edgeIdentityOf(dataDirectory: string, name: string): Promise<EdgeIdentity> {
  return { name, home: await homeOf(dataDirectory), run: randomUUID() };
}

async function homeOf(dataDirectory: string): Promise<string> {
  const file = path.join(dataDirectory, "edge-id");
  const text = await readFile(file, "utf8").catch((thrown: unknown) => {
    if (thrown instanceof Error && "code" in thrown && thrown.code === "ENOENT") return null;
    throw new OperatorError(`The edge's id ${file} cannot be read.`);
  });
  if (text !== null) {
    const home = text.trim();
    if (!FORM.test(home))
      throw new OperatorError(`The edge's id ${file} is damaged; remove the file to have a new one.`);
    return home;
  }
  const home = randomUUID();
  await mkdir(dataDirectory, { recursive: true, mode: 0o700 });
  const fresh = `${file}.${process.pid}.new`;
  await writeFile(fresh, `${home}\n`, { mode: 0o600 });
  await rename(fresh, file);
  return home;
}
