import { execFile } from "node:child_process";
import path from "node:path";
import { pathToFileURL } from "node:url";
import { promisify } from "node:util";
import { expect, it } from "vitest";
import { REPOSITORY } from "../support/source-tree.ts";

/** Sixteen entries at a time, 20,000 of half a kilobyte and more in all; prints what the old generation grew by. */
const PROGRAM = `
  import { getHeapSpaceStatistics } from "node:v8";
  const { TransientMap } = await import(process.argv[1]);
  const oldBytes = () => getHeapSpaceStatistics().find((space) => space.space_name === "old_space").space_used_size;
  const text = JSON.stringify(Array.from({ length: 128 }, (_, place) => place + 0.5));
  const map = new TransientMap();
  gc();
  const beforeBytes = oldBytes();
  for (let id = 0; id < 20_000; id++) {
    map.set(id, JSON.parse(text));
    map.delete(id - 16);
    if (id % 50 === 49) gc({ type: "minor" });
  }
  console.log(oldBytes() - beforeBytes);
`;

it("keeps nothing that was deleted in the old generation, as a Map does", async () => {
  const built = pathToFileURL(path.join(REPOSITORY, "dist/shared/transient-map.js")).href;
  const { stdout } = await promisify(execFile)(process.execPath, [
    "--expose-gc",
    "--input-type=module",
    "--eval",
    PROGRAM,
    built,
  ]);
  // A Map comes to 12 MiB.
  expect(Number(stdout)).toBeLessThan(4 * 2 ** 20);
});
