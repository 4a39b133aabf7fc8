import { defineConfig, type ViteUserConfig } from 'vitest/config';

// Each file runs in a process of its own: tests kill, pause and restart things, and the probe is one per process.
// The database server of a run is started once, by the globalSetup, and so is a DynamoDB, if a test asks for one.
const config: ViteUserConfig = defineConfig({
  test: {
    include: ['test/**/*.test.ts'],
    globalSetup: ['test/support/server.ts', 'test/support/dynamodb-server.ts'],
    pool: 'forks',
    // Much of a run is waiting: for leases to end, for processes to die. Two cores serve four files at a time.
    maxWorkers: 4,
    testTimeout: 60_000,
    hookTimeout: 30_000,
  },
});

export default config;
