import path from "node:path";
import type { Logger } from "../../shared/logging/logger.ts";
import type { Clock } from "../../shared/time/clock.ts";
import type { EdgeConfig } from "../config.ts";
import { MemoryLimits } from "../limits/limits.memory.ts";
import { SharedLimits } from "../limits/limits.shared.ts";
import { scopeIds, spendingOf, spentRequest } from "../limits/scopes.ts";
import { Membership, NameTaken, type MembershipDeps } from "../membership/membership.ts";
import type { OnSettled } from "../ports/ledger.ts";
import { JournaledLedger } from "../usage/journaled-ledger.ts";
import { SharedLedger } from "../usage/shared-ledger.ts";
import * as settings from "../web/settings-of-config.ts";
import type { Closers } from "./closers.ts";
import { openStore, type ClosableStore } from "./database.ts";
import { JOURNAL_FOLDER } from "./journal-files.ts";
import { edgeIdentityOf } from "./edge-identity.ts";
import { FileJournal } from "./journal.file.ts";
import type { LoadedConfig } from "./load-config.ts";
import { OperatorError } from "./operator-error.ts";

export interface Money {
  readonly store: ClosableStore;
  readonly limits: SharedLimits;
  readonly ledger: JournaledLedger;
  /** Reports come to it, since some are about edges that died. */
  readonly sharedLedger: SharedLedger;
  readonly membership: Membership;
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
  let membership: Membership | null = null;
  // Behind the ledger's end: what it still writes counts against this edge's slices.
  closers.add(() => membership?.leave());
  const journal = await FileJournal.open({ folder: path.join(dataDirectory, JOURNAL_FOLDER) });
  let closeJournal = (): Promise<void> => journal.close();
  closers.add(() => closeJournal());
  // After the journal, whose folder only one process can have: a name of the same folder is that of a dead one.
  const identity = await edgeIdentityOf(dataDirectory, config.name);
  const joinedEdges = await joined(config, { clock, logger, store, identity });
  membership = joinedEdges;

  const own = new MemoryLimits(clock, settings.limitDefaults(config));
  // Made after the ledger, whose first rows are of requests that no slice was taken for.
  let limits: SharedLimits | null = null;
  const priceVersion = await store.priceVersion(settings.priceList(config), clock.nowMs());
  const ledger = new JournaledLedger({
    clock,
    logger,
    journal,
    store,
    edge: config.name,
    settings: settings.ledgerSettings(config),
    onSettled,
    onRecorded: (requestIds) => limits?.recorded(requestIds),
    onAdjusted: ({ atMs, nanoUsd, ...spender }) => {
      own
        .addSpent(spender.account, [{ scopes: scopeIds(spender), atMs, nanoUsd: nanoUsd.toString() }])
        .catch((thrown: unknown) => logger.error("a budget missed an adjustment", {}, thrown));
    },
  });
  joinedEdges.whenReturned(() => {
    ledger
      .forgetAdopted()
      .catch((thrown: unknown) => logger.warn("what others settled is not known", { reason: String(thrown) }));
  });
  let sharedLedger: SharedLedger | null = null;
  closeJournal = async () => {
    await ledger.close();
    await sharedLedger?.close();
    await limits?.close();
  };
  await ledger.start();
  sharedLedger = new SharedLedger({
    clock,
    logger,
    store,
    ledger,
    edge: config.name,
    others: () => joinedEdges.others,
    reservedNanoUsd: (requestId) => limits?.reservedNanoUsd(requestId) ?? 0n,
  });
  await sharedLedger.start();
  const nowMs = clock.nowMs();
  for (const [account, spent] of spendingOf(await store.spent(spentRequest(nowMs, null)), nowMs))
    await own.addSpent(account, spent);
  limits = new SharedLimits({ clock, logger, own, store, identity, membership: joinedEdges, ledger });
  await limits.start(config.control.lease_ttl);
  return { store, limits, ledger, sharedLedger, membership: joinedEdges, priceVersion };
}

async function joined(config: EdgeConfig, deps: Omit<MembershipDeps, "leaseTtlMs">): Promise<Membership> {
  const membership = new Membership({ ...deps, leaseTtlMs: config.control.lease_ttl });
  try {
    await membership.join();
  } catch (thrown) {
    if (!(thrown instanceof NameTaken)) throw thrown;
    const seconds = Math.ceil(thrown.freeInMs / 1_000);
    throw new OperatorError(
      `another edge named '${config.name}' uses this database: give each edge a 'name' of its own. ` +
        `If that one is gone, its name is free in ${seconds} s.`,
    );
  }
  return membership;
}
