CREATE TABLE `budget_slices` (
	`scope` text NOT NULL,
	`period` text NOT NULL,
	`edge` text NOT NULL,
	`held_nano_usd` integer NOT NULL,
	PRIMARY KEY(`scope`, `period`, `edge`)
);
--> statement-breakpoint
CREATE INDEX `budget_slices_edge` ON `budget_slices` (`edge`);--> statement-breakpoint
CREATE TABLE `edge_leases` (
	`subject` text PRIMARY KEY NOT NULL,
	`holder` text NOT NULL,
	`holder_run` text NOT NULL,
	`number` integer NOT NULL
);
--> statement-breakpoint
CREATE TABLE `edges` (
	`name` text PRIMARY KEY NOT NULL,
	`home` text NOT NULL,
	`run` text NOT NULL,
	`joined_at` integer NOT NULL,
	`expires_at` integer NOT NULL,
	`sharing` integer NOT NULL
);
--> statement-breakpoint
CREATE TABLE `limit_pools` (
	`scope` text NOT NULL,
	`resource` text NOT NULL,
	`level` real NOT NULL,
	`at` integer NOT NULL,
	`starved_at` integer NOT NULL,
	PRIMARY KEY(`scope`, `resource`)
);
--> statement-breakpoint
CREATE TABLE `open_requests` (
	`request_id` text PRIMARY KEY NOT NULL,
	`edge` text NOT NULL,
	`opened` text NOT NULL,
	`attempts` text NOT NULL,
	`reserved_nano_usd` integer NOT NULL
);
--> statement-breakpoint
CREATE INDEX `open_requests_edge` ON `open_requests` (`edge`);