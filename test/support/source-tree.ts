import { readFileSync, readdirSync, statSync } from "node:fs";
import path from "node:path";
import { fileURLToPath } from "node:url";

/** The repository's root folder. */
export const REPOSITORY = path.resolve(path.dirname(fileURLToPath(import.meta.url)), "../..");

const SKIPPED = new Set(["node_modules", "dist", "build", ".git", ".steerage", ".wrangler"]);

/** Files below a folder of the repository, as relative paths with forward slashes. */
export function filesBelow(folder: string, endings: readonly string[]): string[] {
  const found: string[] = [];
  const walk = (relative: string): void => {
    for (const name of readdirSync(path.join(REPOSITORY, relative))) {
      if (SKIPPED.has(name)) continue;
      const child = path.posix.join(relative, name);
      if (statSync(path.join(REPOSITORY, child)).isDirectory()) walk(child);
      else if (endings.some((ending) => name.endsWith(ending))) found.push(child);
    }
  };
  walk(folder);
  return found;
}

export function textOf(file: string): string {
  return readFileSync(path.join(REPOSITORY, file), "utf8");
}

const IMPORT = /(?:\bfrom\s*|\bimport\s*\(\s*|^\s*import\s+)["']([^"']+)["']/gm;

/** What a file imports: repository paths for relative imports, package names otherwise. */
export function importsOf(file: string): string[] {
  const source = textOf(file).replace(/\/\*[\s\S]*?\*\//g, "");
  return [...source.matchAll(IMPORT)].map((match) => {
    const specifier = match[1] ?? "";
    return specifier.startsWith(".")
      ? path.posix.normalize(path.posix.join(path.posix.dirname(file), specifier))
      : specifier;
  });
}
