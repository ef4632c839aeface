import { FileJournal } from "../../edge/node/journal.file.ts";
import type { Journal } from "../../edge/ports/journal.ts";
import { MemoryJournal } from "../../edge/usage/journal.memory.ts";
import { temporaryFolder } from "../support/temporary-folder.ts";
import { journalContract } from "./journal.contract.ts";

journalContract(() => {
  const { folder, remove } = temporaryFolder();
  const opened: Journal[] = [];
  return {
    name: "files",
    isDurable: true,
    open: async (maxBytes) => {
      const journal = await FileJournal.open({ folder, maxBytes });
      opened.push(journal);
      return journal;
    },
    dispose: async () => {
      for (const journal of opened) await journal.close();
      remove();
    },
  };
});

journalContract(() => ({
  name: "memory",
  isDurable: false,
  open: async (maxBytes) => new MemoryJournal(Math.floor(maxBytes / 20)),
  dispose: async () => undefined,
}));
