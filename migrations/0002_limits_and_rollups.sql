CREATE TABLE `usage_hours` (
	`account` text NOT NULL,
	`project` text NOT NULL,
	`key_id` text NOT NULL,
	`hour` integer NOT NULL,
	`model` text NOT NULL,
	`requests` integer NOT NULL,
	`prompt_tokens` integer NOT NULL,
	`cached_tokens` integer NOT NULL,
	`completion_tokens` integer NOT NULL,
	`cost_nano_usd` integer NOT NULL,
	PRIMARY KEY(`account`, `project`, `key_id`, `hour`, `model`)
);
--> statement-breakpoint
CREATE INDEX `usage_hours_hour` ON `usage_hours` (`hour`);--> statement-breakpoint
ALTER TABLE `accounts` ADD `rpm` integer;--> statement-breakpoint
ALTER TABLE `accounts` ADD `tpm` integer;--> statement-breakpoint
ALTER TABLE `accounts` ADD `budget_nano_usd` integer;--> statement-breakpoint
ALTER TABLE `accounts` ADD `budget_day_nano_usd` integer;--> statement-breakpoint
ALTER TABLE `accounts` ADD `budget_month_nano_usd` integer;--> statement-breakpoint
ALTER TABLE `keys` ADD `budget_day_nano_usd` integer;--> statement-breakpoint
ALTER TABLE `keys` ADD `budget_month_nano_usd` integer;--> statement-breakpoint
ALTER TABLE `projects` ADD `budget_day_nano_usd` integer;--> statement-breakpoint
ALTER TABLE `projects` ADD `budget_month_nano_usd` integer;
--> statement-breakpoint
INSERT INTO `usage_hours` (`account`, `project`, `key_id`, `hour`, `model`, `requests`, `prompt_tokens`, `cached_tokens`, `completion_tokens`, `cost_nano_usd`)
SELECT `account`, `project`, `key_id`, `at` / 3600000 * 3600000, `model`, count(*), sum(`prompt_tokens`), sum(`cached_tokens`), sum(`completion_tokens`), sum(`cost_nano_usd`)
FROM `usage` GROUP BY 1, 2, 3, 4, 5;--> statement-breakpoint
CREATE TRIGGER `usage_added` AFTER INSERT ON `usage` BEGIN
	INSERT INTO `usage_hours` (`account`, `project`, `key_id`, `hour`, `model`, `requests`, `prompt_tokens`, `cached_tokens`, `completion_tokens`, `cost_nano_usd`)
	VALUES (new.`account`, new.`project`, new.`key_id`, new.`at` / 3600000 * 3600000, new.`model`, 1, new.`prompt_tokens`, new.`cached_tokens`, new.`completion_tokens`, new.`cost_nano_usd`)
	ON CONFLICT DO UPDATE SET
		`requests` = `requests` + 1,
		`prompt_tokens` = `prompt_tokens` + excluded.`prompt_tokens`,
		`cached_tokens` = `cached_tokens` + excluded.`cached_tokens`,
		`completion_tokens` = `completion_tokens` + excluded.`completion_tokens`,
		`cost_nano_usd` = `cost_nano_usd` + excluded.`cost_nano_usd`;
END;--> statement-breakpoint
CREATE TRIGGER `usage_removed` AFTER DELETE ON `usage` BEGIN
	UPDATE `usage_hours` SET
		`requests` = `requests` - 1,
		`prompt_tokens` = `prompt_tokens` - old.`prompt_tokens`,
		`cached_tokens` = `cached_tokens` - old.`cached_tokens`,
		`completion_tokens` = `completion_tokens` - old.`completion_tokens`,
		`cost_nano_usd` = `cost_nano_usd` - old.`cost_nano_usd`
	WHERE `account` = old.`account` AND `project` = old.`project` AND `key_id` = old.`key_id`
		AND `hour` = old.`at` / 3600000 * 3600000 AND `model` = old.`model`;
END;--> statement-breakpoint
CREATE TRIGGER `usage_corrected` AFTER UPDATE ON `usage` BEGIN
	UPDATE `usage_hours` SET
		`requests` = `requests` - 1,
		`prompt_tokens` = `prompt_tokens` - old.`prompt_tokens`,
		`cached_tokens` = `cached_tokens` - old.`cached_tokens`,
		`completion_tokens` = `completion_tokens` - old.`completion_tokens`,
		`cost_nano_usd` = `cost_nano_usd` - old.`cost_nano_usd`
	WHERE `account` = old.`account` AND `project` = old.`project` AND `key_id` = old.`key_id`
		AND `hour` = old.`at` / 3600000 * 3600000 AND `model` = old.`model`;
	INSERT INTO `usage_hours` (`account`, `project`, `key_id`, `hour`, `model`, `requests`, `prompt_tokens`, `cached_tokens`, `completion_tokens`, `cost_nano_usd`)
	VALUES (new.`account`, new.`project`, new.`key_id`, new.`at` / 3600000 * 3600000, new.`model`, 1, new.`prompt_tokens`, new.`cached_tokens`, new.`completion_tokens`, new.`cost_nano_usd`)
	ON CONFLICT DO UPDATE SET
		`requests` = `requests` + 1,
		`prompt_tokens` = `prompt_tokens` + excluded.`prompt_tokens`,
		`cached_tokens` = `cached_tokens` + excluded.`cached_tokens`,
		`completion_tokens` = `completion_tokens` + excluded.`completion_tokens`,
		`cost_nano_usd` = `cost_nano_usd` + excluded.`cost_nano_usd`;
END;
