import { expect, it } from "vitest";
import { MemoryJournal } from "../../../../edge/usage/journal.memory.ts";

it("a memory journal counts its entries and forgets what was released", async () => {
  const journal = new MemoryJournal(3);
  for (let at = 0; at < 3; at += 1) journal.append({});
  expect(journal.hasRoom()).toBe(false);
  journal.rotate();
  await journal.release(journal.segments().newest);
  expect(journal.hasRoom()).toBe(true);
});
