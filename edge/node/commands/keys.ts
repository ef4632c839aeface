import { createHash, randomBytes } from "node:crypto";
import type { Command } from "commander";
import { newApiKey } from "../../accounts/api-key.ts";
import type { EdgeConfig } from "../../config.ts";
import { StoreConflict, type KeyRecord, type NewKey } from "../../ports/key-store.ts";
import { nodeClock } from "../clock.node.ts";
import { withExistingStore, withStore } from "../command-store.ts";
import { loadConfig, withConfigOptions, type ConfigOptions } from "../load-config.ts";
import { OperatorError } from "../operator-error.ts";
import { readName, readRate, readUsd, shortened } from "./input.ts";

interface CreateOptions extends ConfigOptions {
  readonly project: string;
  readonly account?: string;
  readonly rpm?: string;
  readonly tpm?: string;
  readonly budgetUsd?: string;
  readonly band?: string;
  readonly json?: boolean;
}

/** `steerage keys create|list|revoke`. */
export function registerKeys(program: Command): void {
  const keys = program.command("keys").description("make, list and revoke API keys");
  withConfigOptions(keys.command("create"))
    .description("make a key; it is shown once and only its hash is kept")
    .requiredOption("--project <name>", "project of the key; made when it is new")
    .option("--account <name>", "account of a new project (default: default)")
    .option("--rpm <n>", "requests per minute; 0 is unlimited (default: auth.default_rpm)")
    .option("--tpm <n>", "tokens per minute; 0 is unlimited (default: auth.default_tpm)")
    .option("--budget-usd <amount>", "dollars that it may cost in all; 0 refuses everything (default: no budget)")
    .option("--band <name>", "highest band it may use (default: any)")
    .option("--json", "print one JSON line")
    .action(createKey);
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
    limits: {
      requestsPerMinute: options.rpm === undefined ? null : readRate(options.rpm, "--rpm"),
      tokensPerMinute: options.tpm === undefined ? null : readRate(options.tpm, "--tpm"),
      budgetNanoUsd: options.budgetUsd === undefined ? null : readUsd(options.budgetUsd, "--budget-usd"),
    },
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
  const lines = keys.map((key) => (options.json === true ? JSON.stringify(keyEntry(key)) : keyLine(key)));
  process.stdout.write(lines.map((line) => `${line}\n`).join(""));
}

async function revokeKey(id: string, options: ConfigOptions): Promise<void> {
  const loaded = await loadConfig(options);
  const wasThere = await withExistingStore(loaded, (store) => store.revokeKey(id, nodeClock.nowMs()));
  if (!wasThere) throw new OperatorError(`there is no key '${shortened(id)}'; 'steerage keys list' shows their ids.`);
  process.stdout.write(`Key ${id} is revoked.\n`);
}

function readBand(text: string, config: EdgeConfig): string {
  const names = config.router.admission.bands.map(({ name }) => name);
  if (names.includes(text)) return text;
  throw new OperatorError(`--band: there is no band '${text}'; there are ${names.join(", ")}.`);
}

function keyEntry(key: KeyRecord): object {
  return {
    id: key.keyId,
    project: key.project,
    account: key.account,
    rpm: key.keyLimits.requestsPerMinute,
    tpm: key.keyLimits.tokensPerMinute,
    budget_nano_usd: key.keyLimits.budgetNanoUsd,
    band: key.highestBand,
    created_at: new Date(key.createdAtMs).toISOString(),
    revoked_at: key.revokedAtMs === null ? null : new Date(key.revokedAtMs).toISOString(),
  };
}

function keyLine(key: KeyRecord): string {
  const state = key.revokedAtMs === null ? "valid" : `revoked ${new Date(key.revokedAtMs).toISOString()}`;
  return `${key.keyId}  ${new Date(key.createdAtMs).toISOString()}  ${key.account}/${key.project}  ${state}`;
}
