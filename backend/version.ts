import { readFileSync } from "node:fs";
import { z } from "zod";

/** The package's own version, whether the code runs from its source or from `dist`. */
export function packageVersion(): string {
  for (const place of ["../package.json", "../../package.json"]) {
    try {
      const document: unknown = JSON.parse(readFileSync(new URL(place, import.meta.url), "utf8"));
      return z.object({ version: z.string() }).parse(document).version;
    } catch {
      // The other place.
    }
  }
  throw new Error("the program stands outside of its package");
}
