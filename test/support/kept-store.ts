import type { AttemptRow, StoredRequests, UsageBatch, UsageRow, UsageStore } from "../../edge/ports/usage-store.ts";

/** Keeps the newest version of every row, as the database does. */
export class KeptStore implements Pick<UsageStore, "record" | "requests"> {
  readonly batches: UsageBatch[] = [];
  away = false;
  /** The id of a request whose rows are refused while others are taken. */
  refused: string | null = null;
  usage = new Map<string, UsageRow>();
  attempts = new Map<string, AttemptRow>();

  async record(batch: UsageBatch): Promise<void> {
    if (this.away) throw new Error("away");
    if (batch.usage.some(({ requestId }) => requestId === this.refused)) throw new Error("datatype mismatch");
    this.batches.push(batch);
    for (const row of batch.usage) this.usage.set(row.requestId, row);
    for (const row of batch.attempts) this.attempts.set(`${row.requestId}.${row.attempt}`, row);
  }

  async requests(requestIds: readonly string[]): Promise<StoredRequests> {
    return { usageRows: requestIds.flatMap((id) => this.usage.get(id) ?? []), attemptRows: [] };
  }
}
