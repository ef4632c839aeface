import { afterEach, beforeEach, describe, expect, it } from "vitest";
import type { Journal } from "../../edge/ports/journal.ts";

export interface JournalCase {
  readonly name: string;
  /** Whether another journal in the same place finds what this one kept. */
  readonly isDurable: boolean;
  /** A journal that refuses new requests from about `maxBytes`, or for those that count otherwise, a like bound. */
  readonly open: (maxBytes: number) => Promise<Journal>;
  readonly dispose: () => Promise<void>;
}

const entry = (number: number): { kind: string; number: number } => ({ kind: "test", number });

/** What every journal must do. */
export function journalContract(create: () => JournalCase): void {
  const { name } = create();
  describe(`the journal (${name})`, () => {
    let given: JournalCase;
    let journal: Journal;
    beforeEach(async () => {
      given = create();
      journal = await given.open(100_000);
      await journal.replay(() => undefined);
    });
    afterEach(() => given.dispose());

    const reopened = async (): Promise<{ entry: unknown; segment: number }[]> => {
      await journal.close();
      journal = await given.open(100_000);
      const found: { entry: unknown; segment: number }[] = [];
      await journal.replay((line, segment) => found.push({ entry: line, segment }));
      return found;
    };

    it("hands out after a restart what was appended, in order, with its segment", async () => {
      const segments = [journal.append(entry(1)), journal.append(entry(2))];
      journal.rotate();
      segments.push(journal.append(entry(3)));
      await journal.sync();
      const kept = segments.map((segment, at) => ({ entry: entry(at + 1), segment }));
      expect(await reopened()).toEqual(given.isDurable ? kept : []);
      expect(segments[0]).toBe(segments[1]);
      expect(segments[2]).toBeGreaterThan(segments[1] ?? 0);
    });

    it("never writes into a segment of a former run", async () => {
      const former = journal.append(entry(1));
      await reopened();
      expect(journal.append(entry(2))).toBeGreaterThanOrEqual(given.isDurable ? former + 1 : 1);
    });

    it("deletes the segments below the one named, and never the one being written", async () => {
      journal.append(entry(1));
      journal.rotate();
      journal.append(entry(2));
      journal.rotate();
      const newest = journal.append(entry(3));
      await journal.sync();
      await journal.release(newest);
      expect(journal.segments()).toEqual({ oldest: newest, newest });
      await journal.release(newest + 10);
      const found = (await reopened()).map((line) => line.entry);
      expect(found).toEqual(given.isDurable ? [entry(3)] : []);
    });

    it("does not end a segment with nothing in it", () => {
      const { newest } = journal.segments();
      journal.rotate();
      expect(journal.segments().newest).toBe(newest);
    });

    it("has no room beyond its bound, takes what must end all the same, and has room again when released", async () => {
      await given.dispose();
      given = create();
      journal = await given.open(2_000);
      await journal.replay(() => undefined);
      expect(journal.hasRoom()).toBe(true);
      for (let number = 0; number < 200; number += 1) journal.append(entry(number));
      journal.writeOut();
      expect(journal.hasRoom()).toBe(false);
      journal.append(entry(200));
      journal.rotate();
      await journal.release(journal.segments().newest);
      expect(journal.hasRoom()).toBe(true);
    });
  });
}
