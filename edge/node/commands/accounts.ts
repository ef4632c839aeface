import type { Command } from "commander";
import type { AccountRecord } from "../../ports/key-store.ts";
import { nodeClock } from "../clock.node.ts";
import { withExistingStore, withStore } from "../command-store.ts";
import { loadConfig, withConfigOptions, type ConfigOptions } from "../load-config.ts";
import { OperatorError } from "../operator-error.ts";
import { printed, printedList, readName, shortened } from "./input.ts";
import {
  assertChange,
  limitEntry,
  limitText,
  readLimits,
  readNewLimits,
  withLimitOptions,
  type LimitOptions,
} from "./limit-options.ts";

type AccountOptions = ConfigOptions & LimitOptions & { readonly json?: boolean };

/** `steerage accounts create|update|list`. */
export function registerAccounts(program: Command): void {
  const accounts = program.command("accounts").description("make and list accounts, and set their limits");
  withLimitOptions(withConfigOptions(accounts.command("create")))
    .description("make an account; projects of a new one make it by themselves, without limits")
    .argument("<name>", "the account's name")
    .option("--json", "print one JSON line")
    .action(createAccount);
  withLimitOptions(withConfigOptions(accounts.command("update")))
    .description("change limits of an account; every edge knows within a second")
    .argument("<name>", "the account's name")
    .option("--json", "print one JSON line")
    .action(updateAccount);
  withConfigOptions(accounts.command("list"))
    .description("list the accounts with their limits")
    .option("--json", "print one JSON line an account")
    .action(listAccounts);
}

async function createAccount(name: string, options: AccountOptions): Promise<void> {
  const record = { account: readName(name, "name"), limits: readNewLimits(options), createdAtMs: nodeClock.nowMs() };
  const created = await withStore(await loadConfig(options), (store) => store.createAccount(record));
  printed(created, options, accountEntry, accountLine);
}

async function updateAccount(name: string, options: AccountOptions): Promise<void> {
  const limits = readLimits(options);
  assertChange(limits);
  const record = await withExistingStore(await loadConfig(options), (store) => store.updateAccount(name, { limits }));
  if (record === null)
    throw new OperatorError(`there is no account '${shortened(name)}'; 'steerage accounts list' shows their names.`);
  printed(record, options, accountEntry, accountLine);
}

async function listAccounts(options: ConfigOptions & { readonly json?: boolean }): Promise<void> {
  const records = await withExistingStore(await loadConfig(options), (store) => store.listAccounts());
  printedList(records, options, accountEntry, accountLine);
}

function accountEntry({ account, limits, createdAtMs }: AccountRecord): object {
  return { account, ...limitEntry(limits), created_at: new Date(createdAtMs).toISOString() };
}

const accountLine = ({ account, limits }: AccountRecord): string => `${account}  ${limitText(limits)}`;
