import type { Launcher } from "../supervisor/launcher.ts";

export interface SimLauncherOptions {
  readonly model: string;
  readonly slots: number;
  readonly maxPending: number;
  readonly contextLength: number;
  /** The flags of `steerage-backend sim`, with underscores. */
  readonly script: Readonly<Record<string, string | number | boolean>>;
  /** The program that has the `sim` command. */
  readonly program: string;
}

/** Starts `steerage-backend sim` on the replica's socket. */
export function simLauncher(options: SimLauncherOptions): Launcher {
  return {
    engine: "sim",
    findFault: () => Promise.resolve(null),
    prepare: (socketPath) =>
      Promise.resolve({
        command: process.execPath,
        arguments: [
          options.program,
          "sim",
          `--socket=${socketPath}`,
          `--model=${options.model}`,
          `--slots=${options.slots}`,
          `--max-pending=${options.maxPending}`,
          `--context-length=${options.contextLength}`,
          ...Object.entries(options.script).flatMap(([name, value]) => flagOf(name, value)),
        ],
        environment: {},
      }),
  };
}

function flagOf(name: string, value: string | number | boolean): string[] {
  const flag = `--${name.replaceAll("_", "-")}`;
  if (typeof value === "boolean") return value ? [flag] : [];
  return [flag, String(value)];
}
