import { createHash, randomBytes } from "node:crypto";
import type { Command } from "commander";
import { calculateJwkThumbprint } from "jose";
import { newHostToken } from "../../accounts/api-key.ts";
import { nodeClock } from "../clock.node.ts";
import { withExistingStore, withStore } from "../command-store.ts";
import { loadConfig, withConfigOptions, type ConfigOptions } from "../load-config.ts";
import { OperatorError } from "../operator-error.ts";
import { existingSigningKeysOf } from "../signing-keys.ts";
import { readName, shortened } from "./input.ts";

type JsonOptions = ConfigOptions & { readonly json?: boolean };

/** `steerage hosts enroll|list|revoke`. */
export function registerHosts(program: Command): void {
  const hosts = program.command("hosts").description("let machines report to this edge");
  withConfigOptions(hosts.command("enroll"))
    .description("make a host's enrolment token, or a new one that ends the old; it is shown once")
    .argument("<name>", "the host's name, as in its own configuration")
    .option("--json", "print one JSON line")
    .action(enroll);
  withConfigOptions(hosts.command("list"))
    .description("list the hosts that were enrolled")
    .option("--json", "print one JSON line a host")
    .action(list);
  withConfigOptions(hosts.command("revoke"))
    .description("end a host's token; every edge refuses it within a second")
    .argument("<name>", "the host's name")
    .action(revoke);
}

async function enroll(name: string, options: JsonOptions): Promise<void> {
  const host = readName(name, "name");
  const token = newHostToken((length) => randomBytes(length));
  const tokenSha256 = createHash("sha256").update(token).digest("hex");
  const loaded = await loadConfig(options);
  await withStore(loaded, (store) => store.enrollHost(host, tokenSha256, nodeClock.nowMs()));
  const { keys } = (await existingSigningKeysOf(loaded.dataDirectory)) ?? { keys: [] };
  const fingerprints = await Promise.all(keys.map(({ kty, crv, x }) => calculateJwkThumbprint({ kty, crv, x })));
  process.stdout.write(
    options.json === true
      ? `${JSON.stringify({ host, token, edge_key_fingerprints: fingerprints })}\n`
      : `Host ${host} may report with this token. It is shown only now:\n${token}\n${pinsText(fingerprints)}`,
  );
}

function pinsText(fingerprints: readonly string[]): string {
  if (fingerprints.length === 0) return "";
  return `This edge's keys, for the host's edge_key_fingerprints:\n${fingerprints.join("\n")}\n`;
}

async function list(options: JsonOptions): Promise<void> {
  const hosts = await withExistingStore(await loadConfig(options), (store) => store.listHosts());
  for (const { host, enrolledAtMs, revokedAtMs } of hosts) {
    const enrolledAt = new Date(enrolledAtMs).toISOString();
    const revokedAt = revokedAtMs === null ? null : new Date(revokedAtMs).toISOString();
    const line =
      options.json === true
        ? JSON.stringify({ host, enrolled_at: enrolledAt, revoked_at: revokedAt })
        : `${host}  ${enrolledAt}  ${revokedAt === null ? "valid" : `revoked ${revokedAt}`}`;
    process.stdout.write(`${line}\n`);
  }
}

async function revoke(name: string, options: ConfigOptions): Promise<void> {
  const loaded = await loadConfig(options);
  const wasThere = await withExistingStore(loaded, (store) => store.revokeHost(name, nodeClock.nowMs()));
  if (!wasThere) throw new OperatorError(`there is no host '${shortened(name)}'; 'steerage hosts list' shows them.`);
  process.stdout.write(`Host ${name} is revoked.\n`);
}
