import type { EngineFarewell } from "../ports/engine-process.ts";

/** How long an engine may take to end by itself after its host is gone, before it is ended hard. */
const ORPHAN_GRACE_MS = 3_000;

/**
 * Ties this engine process to the host that started it: the IPC channel closes when the host dies, however it dies,
 * and the engine then ends as on SIGTERM. Does nothing when no host started it.
 */
export function tieToHost(): void {
  if (process.channel === undefined || process.channel === null) return;
  process.once("disconnect", () => {
    setTimeout(() => process.kill(process.pid, "SIGKILL"), ORPHAN_GRACE_MS).unref();
    process.kill(process.pid, "SIGTERM");
  });
  process.channel.unref();
}

/** Tells the host why this engine ends; without a host the reason goes to stderr. */
export async function sayFarewell(reason: string): Promise<void> {
  const send = process.send?.bind(process);
  if (send === undefined) {
    process.stderr.write(`error: ${reason}\n`);
    return;
  }
  const farewell: EngineFarewell = { type: "failed", reason };
  await new Promise<void>((resolve) => send(farewell, undefined, undefined, () => resolve()));
}
