import { defineConfig } from "vitest/config";

/** The bundled Worker inside workerd; apart from the rest, since it is built first. */
export default defineConfig({
  test: {
    include: ["test/workers/**/*.test.ts"],
    pool: "forks",
    maxWorkers: 1,
    testTimeout: 60_000,
    hookTimeout: 120_000,
  },
});
