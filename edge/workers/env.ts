import { z } from "zod";
import { readConfig } from "../../shared/config/read-config.ts";
import { edgeConfigSchema, type EdgeConfig } from "../config.ts";
import { signingKeySetSchema, type SigningKeySet } from "../web/signer.jose.ts";
import type { CoordinatorObject } from "./coordinator-object.ts";
import type { FleetObject } from "./fleet-object.ts";
import type { LedgerObject } from "./ledger-object.ts";
import type { LimitsObject } from "./limits-object.ts";

/** Bindings of `wrangler.toml`. */
export interface WorkerEnv {
  readonly COORDINATOR: DurableObjectNamespace<CoordinatorObject>;
  readonly FLEET: DurableObjectNamespace<FleetObject>;
  readonly LIMITS: DurableObjectNamespace<LimitsObject>;
  readonly LEDGER: DurableObjectNamespace<LedgerObject>;
  /** Configuration as JSON text, in the form of the file. */
  readonly EDGE_CONFIG?: string;
  readonly LIBSQL_URL: string;
  /** Secrets. */
  readonly LIBSQL_AUTH_TOKEN?: string;
  readonly EDGE_SIGNING_KEYS: string;
  /** Keys of static endpoints, by the names in `endpoints[].api_key_env`. */
  readonly [secret: string]: unknown;
}

/** What the Worker and its objects know of their environment; read here and nowhere else. */
export interface WorkerSettings {
  readonly config: EdgeConfig;
  readonly libsqlUrl: string;
  readonly libsqlAuthToken: string | undefined;
  readonly signingKeys: SigningKeySet;
  readonly secret: (name: string) => string | undefined;
}

const textsSchema = z.object({
  EDGE_CONFIG: z.string().default("{}"),
  LIBSQL_URL: z.string().min(1),
  LIBSQL_AUTH_TOKEN: z.string().optional(),
  EDGE_SIGNING_KEYS: z.string().min(1),
});

/** Plain frozen data, so it may outlive a request; parsed once for each environment of an isolate. */
const known = new WeakMap<object, WorkerSettings>();

/** Throws ConfigError or a ZodError that names the binding. */
export function settingsOf(env: WorkerEnv): WorkerSettings {
  const present = known.get(env);
  if (present !== undefined) return present;
  const texts = textsSchema.parse(env);
  const document: unknown = JSON.parse(texts.EDGE_CONFIG);
  const keys: unknown = JSON.parse(texts.EDGE_SIGNING_KEYS);
  const settings: WorkerSettings = {
    config: readConfig(edgeConfigSchema, document, "EDGE_CONFIG"),
    libsqlUrl: texts.LIBSQL_URL,
    libsqlAuthToken: texts.LIBSQL_AUTH_TOKEN,
    signingKeys: signingKeySetSchema.parse(keys),
    secret(name) {
      const value = env[name];
      return typeof value === "string" ? value : undefined;
    },
  };
  known.set(env, settings);
  return settings;
}
