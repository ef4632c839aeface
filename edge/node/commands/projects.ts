import type { Command } from "commander";
import type { ProjectRecord } from "../../ports/key-store.ts";
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

type ProjectOptions = ConfigOptions &
  LimitOptions & { readonly account?: string; readonly band?: string; readonly json?: boolean };

/** `steerage projects create|update|list`. */
export function registerProjects(program: Command): void {
  const projects = program.command("projects").description("make and list projects, and set their limits");
  withLimitOptions(withConfigOptions(projects.command("create")))
    .description("make a project; keys of a new one make it by themselves, without limits")
    .argument("<name>", "the project's name")
    .option("--account <name>", "its account, made when it is new (default: default)")
    .option("--band <name>", "highest band its keys may use (default: any)")
    .option("--json", "print one JSON line")
    .action(createProject);
  withLimitOptions(withConfigOptions(projects.command("update")))
    .description("change limits of a project; every edge knows within a second")
    .argument("<name>", "the project's name")
    .option("--band <name>", "highest band its keys may use; none is any")
    .option("--json", "print one JSON line")
    .action(updateProject);
  withConfigOptions(projects.command("list"))
    .description("list the projects with their limits")
    .option("--json", "print one JSON line a project")
    .action(listProjects);
}

async function createProject(name: string, options: ProjectOptions): Promise<void> {
  const project = readName(name, "name");
  const account = options.account === undefined ? null : readName(options.account, "--account");
  const limits = readNewLimits(options);
  const loaded = await loadConfig(options);
  const band = options.band === undefined ? null : readBand(options.band, loaded.config);
  const record = await withStore(loaded, (store) =>
    store.createProject({ project, account, limits, band, createdAtMs: nodeClock.nowMs() }),
  );
  printed(record, options, projectEntry, projectLine);
}

async function updateProject(name: string, options: ProjectOptions): Promise<void> {
  const limits = readLimits(options);
  assertChange(limits, options.band);
  const loaded = await loadConfig(options);
  const band = options.band === undefined ? {} : { band: readBand(options.band, loaded.config) };
  const record = await withExistingStore(loaded, (store) => store.updateProject(name, { limits, ...band }));
  if (record === null)
    throw new OperatorError(`there is no project '${shortened(name)}'; 'steerage projects list' shows their names.`);
  printed(record, options, projectEntry, projectLine);
}

async function listProjects(options: ConfigOptions & { readonly json?: boolean }): Promise<void> {
  const records = await withExistingStore(await loadConfig(options), (store) => store.listProjects());
  printedList(records, options, projectEntry, projectLine);
}

function projectEntry({ project, account, limits, band, createdAtMs }: ProjectRecord): object {
  return { project, account, ...limitEntry(limits), band, created_at: new Date(createdAtMs).toISOString() };
}

const projectLine = ({ project, account, limits, band }: ProjectRecord): string =>
  `${account}/${project}  ${limitText(limits)}${band === null ? "" : `, up to band ${band}`}`;
