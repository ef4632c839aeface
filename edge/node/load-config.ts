import { readFile } from "node:fs/promises";
import path from "node:path";
import type { Command } from "commander";
import { parseDocument } from "yaml";
import { withEnvironment } from "../../shared/config/environment.ts";
import { ConfigError, readConfig } from "../../shared/config/read-config.ts";
import { llmgwHint } from "../config/llmgw-keys.ts";
import { EDGE_ENVIRONMENT_PREFIX, edgeConfigSchema, type EdgeConfig } from "../config.ts";
import { environment } from "./env.ts";

/** What every operator command accepts; a flag wins over the environment, which wins over the file. */
export interface ConfigOptions {
  /** Path of a YAML file; none means defaults. */
  readonly config?: string | undefined;
  /** Data directory. */
  readonly data?: string | undefined;
  /** Path or libSQL URL. */
  readonly databaseUrl?: string | undefined;
}

export interface LoadedConfig {
  readonly config: EdgeConfig;
  /** Absolute. */
  readonly dataDirectory: string;
  /** `file:` URL of an absolute path, or the URL of a libSQL server. */
  readonly databaseUrl: string;
  /** Of a libSQL server, from LIBSQL_AUTH_TOKEN; never logged. */
  readonly databaseAuthToken: string | undefined;
}

export const DATABASE_FILE = "steerage.db";

/** The three options, the same on every command. */
export function withConfigOptions(command: Command): Command {
  return command
    .option("--config <file>", "configuration file (YAML)")
    .option("--data <dir>", "data directory: database, journal, keys (default: .steerage)")
    .option("--database-url <url>", "path of the database file, or a libSQL URL");
}

/** Reads file and environment, checks them, and makes paths absolute. Rejects with ConfigError. */
export async function loadConfig(options: ConfigOptions): Promise<LoadedConfig> {
  const file = options.config === undefined ? null : path.resolve(options.config);
  const document = file === null ? {} : parsedYaml(await fileText(file), options.config ?? file);
  const config = readConfig(
    edgeConfigSchema,
    withEnvironment(document, edgeConfigSchema, EDGE_ENVIRONMENT_PREFIX, environment),
    options.config ?? "The configuration",
    llmgwHint,
  );
  const folder = file === null ? process.cwd() : path.dirname(file);
  const dataDirectory = options.data === undefined ? path.resolve(folder, config.data) : path.resolve(options.data);
  const store = options.databaseUrl ?? config.auth.store;
  return {
    config,
    dataDirectory,
    databaseAuthToken: environment["LIBSQL_AUTH_TOKEN"],
    databaseUrl: databaseUrlOf(store, options.databaseUrl ? process.cwd() : folder, dataDirectory),
  };
}

function databaseUrlOf(store: string, folder: string, dataDirectory: string): string {
  if (store === "") return `file:${path.join(dataDirectory, DATABASE_FILE)}`;
  if (/^(?:libsql|https?|wss?):/.test(store)) return store;
  return `file:${path.resolve(folder, store.replace(/^file:/, ""))}`;
}

async function fileText(file: string): Promise<string> {
  try {
    return await readFile(file, "utf8");
  } catch (thrown) {
    const reason = thrown instanceof Error && "code" in thrown ? String(thrown.code) : "unreadable";
    throw new ConfigError(`The configuration file ${file} cannot be read (${reason}).`);
  }
}

function parsedYaml(text: string, name: string): unknown {
  const document = parseDocument(text, { prettyErrors: true });
  const fault = document.errors[0];
  if (fault !== undefined) throw new ConfigError(`${name} is not valid YAML: ${fault.message.split("\n")[0]}`);
  const value: unknown = document.toJS();
  return value;
}
