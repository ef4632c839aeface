import { afterEach, expect, it } from "vitest";
import { FileJournal } from "../../../../edge/node/journal.file.ts";
import { temporaryFolder } from "../../../support/temporary-folder.ts";

const { folder, remove } = temporaryFolder();
afterEach(() => remove());

it("a journal whose disk fails to make lines durable lets nothing in until it has worked again", async () => {
  const state = { fails: false };
  const journal = await FileJournal.open({
    folder,
    syncFile: () => (state.fails ? Promise.reject(new Error("EIO")) : Promise.resolve()),
  });
  journal.append({ n: 1 });
  await journal.sync();
  expect(journal.hasRoom()).toBe(true);
  state.fails = true;
  journal.append({ n: 2 });
  expect(journal.hasRoom()).toBe(true);
  await expect(journal.sync()).rejects.toThrow("EIO");
  expect(journal.hasRoom()).toBe(false);
  await expect(journal.sync()).rejects.toThrow("EIO");
  state.fails = false;
  expect(journal.hasRoom()).toBe(false);
  await journal.sync();
  expect(journal.hasRoom()).toBe(true);
  await journal.close();
});

it("a failure of an ended segment counts too", async () => {
  const state = { fails: true };
  const journal = await FileJournal.open({
    folder,
    syncFile: () => (state.fails ? Promise.reject(new Error("EIO")) : Promise.resolve()),
  });
  journal.append({ n: 1 });
  journal.rotate();
  await expect(journal.sync()).rejects.toThrow("EIO");
  expect(journal.hasRoom()).toBe(false);
  state.fails = false;
  await journal.sync();
  expect(journal.hasRoom()).toBe(true);
  await journal.close();
});
