/** How to start one engine process. Paths are absolute. */
export interface LaunchPlan {
  readonly command: string;
  readonly arguments: readonly string[];
  /** Added to the host's own environment. */
  readonly environment: Readonly<Record<string, string>>;
}

/** Knows one kind of engine: what must be there, and how its process is started. */
export interface Launcher {
  /** Kind as reports name it. */
  readonly engine: string;
  /** What stands against a start, naming the file and the reason; null when nothing does. Cheap: headers only. */
  findFault(): Promise<string | null>;
  /** `socketPath` is free and in a folder that only this user may enter; further files of the start may go there. */
  prepare(socketPath: string): Promise<LaunchPlan>;
}
