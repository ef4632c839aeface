import { createClient } from "@libsql/client/web";
import { LibsqlStore } from "../store/store.libsql.ts";
import { workersClock } from "./clock.workers.ts";
import type { WorkerSettings } from "./env.ts";

/** The database over HTTP. One for each request or call of an object: no connection outlives what opened it. */
export function storeOf(settings: WorkerSettings): LibsqlStore {
  const { libsqlUrl, libsqlAuthToken } = settings;
  return new LibsqlStore({
    clock: workersClock,
    isFile: false,
    connect: () =>
      Promise.resolve(
        createClient({
          url: libsqlUrl,
          intMode: "bigint",
          ...(libsqlAuthToken === undefined ? {} : { authToken: libsqlAuthToken }),
        }),
      ),
  });
}
