import { readFileSync } from "node:fs";
import path from "node:path";
import { z } from "zod";
import { packageRoot } from "./package-root.ts";

/** The package's own version. */
export function packageVersion(): string {
  const document: unknown = JSON.parse(readFileSync(path.join(packageRoot(), "package.json"), "utf8"));
  return z.object({ version: z.string() }).parse(document).version;
}
