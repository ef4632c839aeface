import path from "node:path";
import { nodeClock } from "../../edge/node/clock.node.ts";
import { openCommandStore, openStore } from "../../edge/node/database.ts";
import { keptLogger } from "../support/silent-logger.ts";
import { temporaryFolder } from "../support/temporary-folder.ts";
import { HranaServer } from "../support/hrana-server.ts";
import { edgeStoreContract } from "./edge-store.contract.ts";
import { sliceStoreContract } from "./slice-store.contract.ts";
import { storeContract, type StoreCase } from "./store.contract.ts";

function allContracts(adapter: StoreCase): void {
  storeContract(adapter);
  edgeStoreContract(adapter);
  sliceStoreContract(adapter);
}

allContracts({
  name: "a server over HTTP",
  create: async () => {
    const { folder, remove } = temporaryFolder();
    const server = await HranaServer.start({ file: path.join(folder, "server.db"), token: "t" });
    const options = { databaseUrl: server.url, authToken: "t", clock: nodeClock, logger: keptLogger().logger };
    const store = await openStore(options);
    return {
      store,
      dispose: async () => {
        await store.close();
        await server.stop();
        remove();
      },
    };
  },
});

for (const [name, open] of [
  ["a file in this thread", openCommandStore],
  ["a file in a thread of its own", openStore],
] as const) {
  allContracts({
    name,
    create: async () => {
      const { folder, remove } = temporaryFolder();
      const databaseUrl = `file:${path.join(folder, "a folder", "steerage.db")}`;
      const store = await open({ databaseUrl, clock: nodeClock, logger: keptLogger().logger });
      return {
        store,
        dispose: async () => {
          await store.close();
          remove();
        },
      };
    },
  });
}
