import { defineConfig } from "vitest/config";

export default defineConfig({
  test: {
    include: ["test/**/*.test.ts"],
    exclude: ["test/workers/**"],
    globalSetup: ["test/support/temporary-root.ts"],
    pool: "forks",
    // Two cores are the smallest machine this is run on; real servers and the native core run beside the tests.
    maxWorkers: 2,
    testTimeout: 60_000,
    hookTimeout: 120_000,
    restoreMocks: true,
  },
});
