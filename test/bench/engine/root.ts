import { existsSync } from "node:fs";
import path from "node:path";
import { fileURLToPath } from "node:url";

/** The checkout: the bench runs from `dist`, its models and programs lie in the folders of the source. */
export const ROOT = above(path.dirname(fileURLToPath(import.meta.url)));

function above(folder: string): string {
  return existsSync(path.join(folder, "package.json")) ? folder : above(path.dirname(folder));
}
