import { existsSync, readFileSync } from "node:fs";
import path from "node:path";
import { fileURLToPath } from "node:url";
import { z } from "zod";

/** The package's own version, from the nearest package.json above this file. */
export function packageVersion(): string {
  let folder = path.dirname(fileURLToPath(import.meta.url));
  while (!existsSync(path.join(folder, "package.json"))) {
    const above = path.dirname(folder);
    if (above === folder) return "unknown";
    folder = above;
  }
  const document: unknown = JSON.parse(readFileSync(path.join(folder, "package.json"), "utf8"));
  return z.object({ version: z.string() }).parse(document).version;
}
