import type { Journal } from "../ports/journal.ts";

/** Lines above which nothing new is let in: the database has been away for long. */
const MAX_LINES = 200_000;

/**
 * The journal in the storage of a Durable Object. A line is durable before any answer of the object leaves it (the
 * runtime's output gate), so there is nothing to hand over or to sync.
 */
export class DurableObjectJournal implements Journal {
  readonly #sql: SqlStorage;
  #newest: number;

  constructor(storage: DurableObjectStorage) {
    this.#sql = storage.sql;
    this.#sql.exec(
      "CREATE TABLE IF NOT EXISTS journal (place INTEGER PRIMARY KEY AUTOINCREMENT, segment INTEGER NOT NULL, line TEXT NOT NULL)",
    );
    this.#sql.exec("CREATE INDEX IF NOT EXISTS journal_segment ON journal (segment)");
    // A new run writes into a segment of its own.
    this.#newest = this.#numberOf("SELECT coalesce(max(segment), 0) + 1 AS number FROM journal");
  }

  replay(take: (entry: unknown, segment: number) => void): Promise<void> {
    const rows = this.#sql.exec<{ segment: number; line: string }>("SELECT segment, line FROM journal ORDER BY place");
    for (const { segment, line } of rows) {
      const entry: unknown = JSON.parse(line);
      take(entry, segment);
    }
    return Promise.resolve();
  }

  append(entry: object): number {
    this.#sql.exec("INSERT INTO journal (segment, line) VALUES (?, ?)", this.#newest, JSON.stringify(entry));
    return this.#newest;
  }

  writeOut(): void {
    // Nothing waits here.
  }

  sync(): Promise<void> {
    return Promise.resolve();
  }

  hasRoom(): boolean {
    return this.lines() < MAX_LINES;
  }

  lines(): number {
    return this.#numberOf("SELECT count(*) AS number FROM journal");
  }

  segments(): { readonly oldest: number; readonly newest: number } {
    return {
      oldest: this.#numberOf("SELECT coalesce(min(segment), ?) AS number FROM journal", this.#newest),
      newest: this.#newest,
    };
  }

  rotate(): void {
    this.#newest++;
  }

  release(below: number): Promise<void> {
    this.#sql.exec("DELETE FROM journal WHERE segment < ?", below);
    return Promise.resolve();
  }

  close(): Promise<void> {
    return Promise.resolve();
  }

  #numberOf(query: string, ...values: number[]): number {
    return Number(this.#sql.exec(query, ...values).one()["number"]);
  }
}
