import { readdir, readFile } from "node:fs/promises";
import { availableParallelism } from "node:os";
import { join } from "node:path";

const CPU_FOLDER = "/sys/devices/system/cpu";

/** Physical cores: two threads of one core do not compute faster than one. Falls back to what Node may use. */
export async function physicalCores(folder: string = CPU_FOLDER): Promise<number> {
  const usable = availableParallelism();
  try {
    const names = (await readdir(folder)).filter((name) => /^cpu\d+$/.test(name));
    const siblings = await Promise.all(
      names.map((name) => readFile(join(folder, name, "topology", "thread_siblings_list"), "utf8")),
    );
    const cores = new Set(siblings.map((list) => list.trim())).size;
    return cores === 0 ? usable : Math.min(cores, usable);
  } catch {
    return usable;
  }
}
