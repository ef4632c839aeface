import { existsSync } from "node:fs";
import path from "node:path";
import { fileURLToPath, pathToFileURL } from "node:url";

/** Starts a compiled program of this checkout, or says how to compile it. */
export async function runBuilt(program) {
  const root = path.resolve(path.dirname(fileURLToPath(import.meta.url)), "..");
  const file = path.join(root, "dist", program);
  if (!existsSync(file)) {
    process.stderr.write("steerage is not built yet: run 'npm run build' in the project folder first.\n");
    process.exit(2);
  }
  await import(pathToFileURL(file).href);
}
