import { mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import path from "node:path";

/** A new empty folder, and the function that removes it. */
export function temporaryFolder(): { readonly folder: string; readonly remove: () => void } {
  const folder = mkdtempSync(path.join(tmpdir(), "steerage-test-"));
  return { folder, remove: () => rmSync(folder, { recursive: true, force: true }) };
}
