import { mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import path from "node:path";

/** Everything that tests leave in the system's folder for temporary files goes with one folder when the run is over. */
export default function setUp(): () => void {
  const root = mkdtempSync(path.join(tmpdir(), "steerage-run-"));
  process.env["TMPDIR"] = root;
  return () => rmSync(root, { recursive: true, force: true });
}
