import { customType, index, primaryKey, real, sqliteTable, text } from "drizzle-orm/sqlite-core";

/**
 * Connections read integers as bigint, so that none is ever rounded. A count or a time fits a JavaScript number; one
 * that does not is refused rather than changed.
 */
const integer = customType<{ data: number; driverData: bigint | number }>({
  dataType: () => "integer",
  fromDriver: (value) => {
    const number = Number(value);
    if (!Number.isSafeInteger(number)) throw new RangeError("an integer of the database is too large");
    return number;
  },
});

/** Money: integer nano-dollars, decimal text outside of the database. */
const nanoUsd = customType<{ data: string; driverData: bigint | number }>({
  dataType: () => "integer",
  fromDriver: (value) => BigInt(value).toString(),
  toDriver: (value) => BigInt(value),
});

/** Limits of a scope: null is none of its own. Budgets are nano-dollars in all, and of a day and a month in UTC. */
const limits = {
  rpm: integer(),
  tpm: integer(),
  budgetNanoUsd: nanoUsd("budget_nano_usd"),
  budgetDayNanoUsd: nanoUsd("budget_day_nano_usd"),
  budgetMonthNanoUsd: nanoUsd("budget_month_nano_usd"),
};

export const accounts = sqliteTable("accounts", {
  name: text().primaryKey(),
  createdAt: integer("created_at").notNull(),
  ...limits,
});

export const projects = sqliteTable("projects", {
  name: text().primaryKey(),
  account: text()
    .notNull()
    .references(() => accounts.name),
  ...limits,
  band: text(),
  createdAt: integer("created_at").notNull(),
});

export const keys = sqliteTable("keys", {
  publicId: text("public_id").primaryKey(),
  project: text()
    .notNull()
    .references(() => projects.name),
  secretSha256: text("secret_sha256").notNull(),
  ...limits,
  band: text(),
  createdAt: integer("created_at").notNull(),
  revokedAt: integer("revoked_at"),
});

/** Counters that grow when cached knowledge becomes void. */
export const revisions = sqliteTable("revisions", {
  subject: text().primaryKey(),
  revision: integer().notNull(),
});

export const hosts = sqliteTable("hosts", {
  name: text().primaryKey(),
  tokenSha256: text("token_sha256").notNull().unique(),
  enrolledAt: integer("enrolled_at").notNull(),
  revokedAt: integer("revoked_at"),
});

/** A list of prices never changes; new prices are a new version. The empty model is the default. */
export const prices = sqliteTable(
  "prices",
  {
    version: integer().notNull(),
    model: text().notNull(),
    promptPer1k: integer("prompt_per_1k").notNull(),
    cachedPer1k: integer("cached_per_1k").notNull(),
    completionPer1k: integer("completion_per_1k").notNull(),
    since: integer().notNull(),
  },
  (table) => [primaryKey({ columns: [table.version, table.model] })],
);

/** No foreign keys: a row of money stands even when its key, project or account is gone. */
export const usage = sqliteTable(
  "usage",
  {
    requestId: text("request_id").primaryKey(),
    clientRequestId: text("client_request_id"),
    at: integer().notNull(),
    settledAt: integer("settled_at").notNull(),
    account: text().notNull(),
    project: text().notNull(),
    keyId: text("key_id").notNull(),
    model: text().notNull(),
    backend: text(),
    band: text().notNull(),
    promptTokens: integer("prompt_tokens").notNull(),
    cachedTokens: integer("cached_tokens").notNull(),
    completionTokens: integer("completion_tokens").notNull(),
    steeringHash: text("steering_hash"),
    outcome: text({ enum: ["completed", "cancelled", "failed", "shed", "expired"] }).notNull(),
    exactness: text({ enum: ["exact", "counted", "estimated"] }).notNull(),
    promptPer1k: integer("prompt_per_1k").notNull(),
    cachedPer1k: integer("cached_per_1k").notNull(),
    completionPer1k: integer("completion_per_1k").notNull(),
    priceVersion: integer("price_version").notNull(),
    costNanoUsd: nanoUsd("cost_nano_usd").notNull(),
    queueMs: integer("queue_ms"),
    ttftMs: integer("ttft_ms"),
    tpotMs: real("tpot_ms"),
    totalMs: integer("total_ms").notNull(),
  },
  (table) => [index("usage_at").on(table.at, table.requestId)],
);

/**
 * Sums of `usage` by the hour of `at`. Triggers on `usage` keep them in the transaction that writes a row, whoever
 * writes it; `steerage usage rollup` derives them again from the rows.
 */
export const usageHours = sqliteTable(
  "usage_hours",
  {
    account: text().notNull(),
    project: text().notNull(),
    keyId: text("key_id").notNull(),
    hour: integer().notNull(),
    model: text().notNull(),
    requests: integer().notNull(),
    promptTokens: integer("prompt_tokens").notNull(),
    cachedTokens: integer("cached_tokens").notNull(),
    completionTokens: integer("completion_tokens").notNull(),
    costNanoUsd: nanoUsd("cost_nano_usd").notNull(),
  },
  (table) => [
    primaryKey({ columns: [table.account, table.project, table.keyId, table.hour, table.model] }),
    index("usage_hours_hour").on(table.hour),
  ],
);

export const attempts = sqliteTable(
  "attempts",
  {
    requestId: text("request_id").notNull(),
    attempt: integer().notNull(),
    backend: text().notNull(),
    replica: text().notNull(),
    epoch: integer(),
    endedHour: integer("ended_hour"),
    computedPrompt: integer("computed_prompt").notNull(),
    cachedPrompt: integer("cached_prompt").notNull(),
    computedCompletion: integer("computed_completion").notNull(),
    unbilledReason: text("unbilled_reason"),
    exactness: text({ enum: ["exact", "counted", "estimated"] }).notNull(),
  },
  (table) => [
    primaryKey({ columns: [table.requestId, table.attempt] }),
    index("attempts_ended_hour").on(table.endedHour),
  ],
);

export const hostCounters = sqliteTable(
  "host_counters",
  {
    host: text().notNull(),
    edge: text().notNull(),
    epoch: integer().notNull(),
    hour: integer().notNull(),
    requests: integer().notNull(),
    computedPrompt: integer("computed_prompt").notNull(),
    cachedPrompt: integer("cached_prompt").notNull(),
    computedCompletion: integer("computed_completion").notNull(),
  },
  (table) => [primaryKey({ columns: [table.host, table.edge, table.epoch, table.hour] })],
);

/** Edges of this database; `expires_at` and `joined_at` are of the database's clock. */
export const edges = sqliteTable("edges", {
  name: text().primaryKey(),
  /** Of the data directory. */
  home: text().notNull(),
  /** Of the process. */
  run: text().notNull(),
  joinedAt: integer("joined_at").notNull(),
  expiresAt: integer("expires_at").notNull(),
  /** 1 once it takes its limits in slices. */
  sharing: integer().notNull(),
});

/** Who may do what only one edge may do, under a number that grows with every change of hands. */
export const edgeLeases = sqliteTable("edge_leases", {
  subject: text().primaryKey(),
  holder: text().notNull(),
  holderRun: text("holder_run").notNull(),
  number: integer().notNull(),
});

/** Requests that run at an edge that is not alone, so that another can settle them when it dies. */
export const openRequests = sqliteTable(
  "open_requests",
  {
    requestId: text("request_id").primaryKey(),
    edge: text().notNull(),
    /** What the ledger knows of it, as JSON. */
    opened: text().notNull(),
    attempts: text().notNull(),
    reservedNanoUsd: nanoUsd("reserved_nano_usd").notNull(),
  },
  (table) => [index("open_requests_edge").on(table.edge)],
);

/** What is left of a rate that several edges share; for money only that somebody could not be served. */
export const limitPools = sqliteTable(
  "limit_pools",
  {
    scope: text().notNull(),
    resource: text({ enum: ["requests", "tokens", "money"] }).notNull(),
    level: real().notNull(),
    at: integer().notNull(),
    starvedAt: integer("starved_at").notNull(),
  },
  (table) => [primaryKey({ columns: [table.scope, table.resource] })],
);

/** Money that an edge may still add to what is spent: free, reserved, or settled and not in the database yet. */
export const budgetSlices = sqliteTable(
  "budget_slices",
  {
    scope: text().notNull(),
    period: text().notNull(),
    edge: text().notNull(),
    heldNanoUsd: nanoUsd("held_nano_usd").notNull(),
  },
  (table) => [
    primaryKey({ columns: [table.scope, table.period, table.edge] }),
    index("budget_slices_edge").on(table.edge),
  ],
);

/**
 * First answers by Idempotency-Key. Without a status somebody is making it, until `expires_at` or its renewal; with
 * one it is kept until then. `body` is null where it was too large. By the database's clock.
 */
export const firstAnswers = sqliteTable(
  "first_answers",
  {
    project: text().notNull(),
    keySha256: text("key_sha256").notNull(),
    fingerprint: text().notNull(),
    holder: text().notNull(),
    requestId: text("request_id").notNull(),
    expiresAt: integer("expires_at").notNull(),
    status: integer(),
    headers: text({ mode: "json" }).$type<Readonly<Record<string, string>>>(),
    body: text(),
    bytes: integer().notNull(),
  },
  (table) => [
    primaryKey({ columns: [table.project, table.keySha256] }),
    index("first_answers_expires_at").on(table.expiresAt),
    // Adds up and counts without reading the bodies.
    index("first_answers_bytes").on(table.project, table.bytes),
  ],
);
