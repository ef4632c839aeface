CREATE TABLE `first_answers` (
	`project` text NOT NULL,
	`key_sha256` text NOT NULL,
	`fingerprint` text NOT NULL,
	`holder` text NOT NULL,
	`request_id` text NOT NULL,
	`expires_at` integer NOT NULL,
	`status` integer,
	`headers` text,
	`body` text,
	`bytes` integer NOT NULL,
	PRIMARY KEY(`project`, `key_sha256`)
);
--> statement-breakpoint
CREATE INDEX `first_answers_expires_at` ON `first_answers` (`expires_at`);