import { createHash, randomBytes } from "node:crypto";
import type { Command } from "commander";
import { newApiKey } from "../../accounts/api-key.ts";
import { StoreConflict, type KeyRecord, type NewKey } from "../../ports/key-store.ts";
import { nodeClock } from "../clock.node.ts";
import { withExistingStore, withStore } from "../command-store.ts";
import { loadConfig, withConfigOptions, type ConfigOptions } from "../load-config.ts";
import { OperatorError } from "../operator-error.ts";
import { printed, printedList, readName, shortened } from "./input.ts";
import {
  assertChange,
  limitEntry,
  limitText,
  readBand,
  readLimits,
  readNewLimits,
  withLimitOptions,
  type LimitOptions,
} from "./limit-options.ts";

interface UpdateOptions extends ConfigOptions, LimitOptions {
  readonly band?: string;
  readonly json?: boolean;
}

interface CreateOptions extends UpdateOptions {
  readonly project: string;
  readonly account?: string;
}

/** `steerage keys create|update|list|revoke`. */
export function registerKeys(program: Command): void {
  const keys = program.command("keys").description("make, change, list and revoke API keys");
  withLimitOptions(withConfigOptions(keys.command("create")))
    .description("make a key; it is shown once and only its hash is kept")
    .requiredOption("--project <name>", "project of the key; made when it is new")
    .option("--account <name>", "account of a new project (default: default)")
    .option("--band <name>", "highest band it may use (default: any)")
    .option("--json", "print one JSON line")
    .action(createKey);
  withLimitOptions(withConfigOptions(keys.command("update")))
    .description("change limits of a key; every edge knows within a second")
    .argument("<id>", "the key's public id, as `keys list` shows it")
    .option("--band <name>", "highest band it may use; none is any")
    .option("--json", "print one JSON line")
    .action(updateKey);
  withConfigOptions(keys.command("list"))
    .description("list the keys, without their secrets")
    .option("--json", "print one JSON line a key")
    .action(listKeys);
  withConfigOptions(keys.command("revoke"))
    .description("end a key; every edge refuses it within a second")
    .argument("<id>", "the key's public id, as `keys list` shows it")
    .action(revokeKey);
}

async function createKey(options: CreateOptions): Promise<void> {
  const loaded = await loadConfig(options);
  const { text, publicId, secret } = newApiKey((length) => randomBytes(length));
  const key: NewKey = {
    keyId: publicId,
    secretSha256: createHash("sha256").update(secret).digest("hex"),
    project: readName(options.project, "--project"),
    account: options.account === undefined ? null : readName(options.account, "--account"),
    limits: readNewLimits(options),
    band: options.band === undefined ? null : readBand(options.band, loaded.config),
    createdAtMs: nodeClock.nowMs(),
  };
  const created = await withStore(loaded, async (store) => {
    try {
      return await store.createKey(key);
    } catch (thrown) {
      if (thrown instanceof StoreConflict) throw new OperatorError(`${thrown.message}.`);
      throw thrown;
    }
  });
  const { project } = created;
  process.stdout.write(
    options.json === true
      ? `${JSON.stringify({ id: publicId, key: text, project })}\n`
      : `Key ${publicId} of project ${project}. It is shown only now:\n${text}\n`,
  );
}

async function listKeys(options: ConfigOptions & { readonly json?: boolean }): Promise<void> {
  const keys = await withExistingStore(await loadConfig(options), (store) => store.listKeys());
  printedList(keys, options, keyEntry, keyLine);
}

async function updateKey(id: string, options: UpdateOptions): Promise<void> {
  const limits = readLimits(options);
  assertChange(limits, options.band);
  const loaded = await loadConfig(options);
  const band = options.band === undefined ? {} : { band: readBand(options.band, loaded.config) };
  const key = await withExistingStore(loaded, (store) => store.updateKey(id, { limits, ...band }));
  if (key === null) throw noSuchKey(id);
  printed(key, options, keyEntry, keyLine);
}

async function revokeKey(id: string, options: ConfigOptions): Promise<void> {
  const loaded = await loadConfig(options);
  const wasThere = await withExistingStore(loaded, (store) => store.revokeKey(id, nodeClock.nowMs()));
  if (!wasThere) throw noSuchKey(id);
  process.stdout.write(`Key ${id} is revoked.\n`);
}

const noSuchKey = (id: string): OperatorError =>
  new OperatorError(`there is no key '${shortened(id)}'; 'steerage keys list' shows their ids.`);

function keyEntry(key: KeyRecord): object {
  return {
    id: key.keyId,
    project: key.project,
    account: key.account,
    ...limitEntry(key.keyLimits),
    band: key.highestBand,
    created_at: new Date(key.createdAtMs).toISOString(),
    revoked_at: key.revokedAtMs === null ? null : new Date(key.revokedAtMs).toISOString(),
  };
}

function keyLine(key: KeyRecord): string {
  const state = key.revokedAtMs === null ? "valid" : `revoked ${new Date(key.revokedAtMs).toISOString()}`;
  const made = new Date(key.createdAtMs).toISOString();
  return `${key.keyId}  ${made}  ${key.account}/${key.project}  ${state}  ${limitText(key.keyLimits)}`;
}
