CREATE TABLE `accounts` (
	`name` text PRIMARY KEY NOT NULL,
	`created_at` integer NOT NULL
);
--> statement-breakpoint
CREATE TABLE `attempts` (
	`request_id` text NOT NULL,
	`attempt` integer NOT NULL,
	`backend` text NOT NULL,
	`replica` text NOT NULL,
	`epoch` integer,
	`ended_hour` integer,
	`computed_prompt` integer NOT NULL,
	`cached_prompt` integer NOT NULL,
	`computed_completion` integer NOT NULL,
	`unbilled_reason` text,
	`exactness` text NOT NULL,
	PRIMARY KEY(`request_id`, `attempt`)
);
--> statement-breakpoint
CREATE INDEX `attempts_ended_hour` ON `attempts` (`ended_hour`);--> statement-breakpoint
CREATE TABLE `host_counters` (
	`host` text NOT NULL,
	`edge` text NOT NULL,
	`epoch` integer NOT NULL,
	`hour` integer NOT NULL,
	`requests` integer NOT NULL,
	`computed_prompt` integer NOT NULL,
	`cached_prompt` integer NOT NULL,
	`computed_completion` integer NOT NULL,
	PRIMARY KEY(`host`, `edge`, `epoch`, `hour`)
);
--> statement-breakpoint
CREATE TABLE `hosts` (
	`name` text PRIMARY KEY NOT NULL,
	`token_sha256` text NOT NULL,
	`enrolled_at` integer NOT NULL,
	`revoked_at` integer
);
--> statement-breakpoint
CREATE UNIQUE INDEX `hosts_token_sha256_unique` ON `hosts` (`token_sha256`);--> statement-breakpoint
CREATE TABLE `keys` (
	`public_id` text PRIMARY KEY NOT NULL,
	`project` text NOT NULL,
	`secret_sha256` text NOT NULL,
	`rpm` integer,
	`tpm` integer,
	`budget_nano_usd` integer,
	`band` text,
	`created_at` integer NOT NULL,
	`revoked_at` integer,
	FOREIGN KEY (`project`) REFERENCES `projects`(`name`) ON UPDATE no action ON DELETE no action
);
--> statement-breakpoint
CREATE TABLE `prices` (
	`version` integer NOT NULL,
	`model` text NOT NULL,
	`prompt_per_1k` integer NOT NULL,
	`cached_per_1k` integer NOT NULL,
	`completion_per_1k` integer NOT NULL,
	`since` integer NOT NULL,
	PRIMARY KEY(`version`, `model`)
);
--> statement-breakpoint
CREATE TABLE `projects` (
	`name` text PRIMARY KEY NOT NULL,
	`account` text NOT NULL,
	`rpm` integer,
	`tpm` integer,
	`budget_nano_usd` integer,
	`band` text,
	`created_at` integer NOT NULL,
	FOREIGN KEY (`account`) REFERENCES `accounts`(`name`) ON UPDATE no action ON DELETE no action
);
--> statement-breakpoint
CREATE TABLE `revisions` (
	`subject` text PRIMARY KEY NOT NULL,
	`revision` integer NOT NULL
);
--> statement-breakpoint
CREATE TABLE `usage` (
	`request_id` text PRIMARY KEY NOT NULL,
	`client_request_id` text,
	`at` integer NOT NULL,
	`settled_at` integer NOT NULL,
	`account` text NOT NULL,
	`project` text NOT NULL,
	`key_id` text NOT NULL,
	`model` text NOT NULL,
	`backend` text,
	`band` text NOT NULL,
	`prompt_tokens` integer NOT NULL,
	`cached_tokens` integer NOT NULL,
	`completion_tokens` integer NOT NULL,
	`steering_hash` text,
	`outcome` text NOT NULL,
	`exactness` text NOT NULL,
	`prompt_per_1k` integer NOT NULL,
	`cached_per_1k` integer NOT NULL,
	`completion_per_1k` integer NOT NULL,
	`price_version` integer NOT NULL,
	`cost_nano_usd` integer NOT NULL,
	`queue_ms` integer,
	`ttft_ms` integer,
	`tpot_ms` real,
	`total_ms` integer NOT NULL
);
--> statement-breakpoint
CREATE INDEX `usage_at` ON `usage` (`at`,`request_id`);