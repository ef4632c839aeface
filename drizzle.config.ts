import { defineConfig } from "drizzle-kit";

/** `npx drizzle-kit generate --name what_changed` writes the next migration from the schema. */
export default defineConfig({ dialect: "sqlite", schema: "./edge/store/schema.ts", out: "./migrations" });
