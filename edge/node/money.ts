import path from "node:path";
import type { Logger } from "../../shared/logging/logger.ts";
import type { Clock } from "../../shared/time/clock.ts";
import { MemoryLimits } from "../limits/limits.memory.ts";
import { spendingByScope } from "../limits/scopes.ts";
import type { OnSettled } from "../ports/ledger.ts";
import { JournaledLedger } from "../usage/journaled-ledger.ts";
import * as settings from "../web/settings-of-config.ts";
import type { Closers } from "./closers.ts";
import { openStore, type ClosableStore } from "./database.ts";
import { JOURNAL_FOLDER } from "./journal-files.ts";
import { FileJournal } from "./journal.file.ts";
import type { LoadedConfig } from "./load-config.ts";

export interface Money {
  readonly store: ClosableStore;
  readonly limits: MemoryLimits;
  readonly ledger: JournaledLedger;
  readonly priceVersion: number;
}

/**
 * Opens database, journal, limits and ledger, in the order in which budgets miss nothing and count nothing twice: the
 * ledger's start writes what only the journal knew, then the database tells what was spent, and `onAdjusted` tells
 * what settles later of a former run. `onSettled` hears of every settlement from then on.
 */
export async function openMoney(
  loaded: LoadedConfig,
  deps: { readonly clock: Clock; readonly logger: Logger; readonly closers: Closers; readonly onSettled: OnSettled },
): Promise<Money> {
  const { config, dataDirectory, databaseUrl, databaseAuthToken } = loaded;
  const { clock, logger, closers, onSettled } = deps;
  const store = await openStore({ databaseUrl, authToken: databaseAuthToken, clock, logger });
  closers.add(() => store.close());
  const journal = await FileJournal.open({ folder: path.join(dataDirectory, JOURNAL_FOLDER) });
  let closeJournal = (): Promise<void> => journal.close();
  closers.add(() => closeJournal());

  const limits = new MemoryLimits(clock, settings.limitDefaults(config));
  const priceVersion = await store.priceVersion(settings.priceList(config), clock.nowMs());
  const ledger = new JournaledLedger({
    clock,
    logger,
    journal,
    store,
    edge: config.name,
    settings: settings.ledgerSettings(config),
    onSettled,
    onAdjusted: ({ account, project, keyId, nanoUsd }) => {
      const [spent = {}] = spendingByScope([{ account, project, keyId, costNanoUsd: nanoUsd.toString() }]).values();
      limits
        .seedSpent(account, spent)
        .catch((thrown: unknown) => logger.error("a budget missed an adjustment", {}, thrown));
    },
  });
  closeJournal = () => ledger.close();
  await ledger.start();
  for (const [account, spent] of spendingByScope(await store.spent())) await limits.seedSpent(account, spent);
  return { store, limits, ledger, priceVersion };
}
