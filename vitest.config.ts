import { defineConfig, type ViteUserConfig } from 'vitest/config';

// The files of a worker share its process, one after the other: what tests kill, pause and restart is in processes of their own,
// and a process for each file, with all modules loaded anew, takes 100 s more of the processor.
// The database server of a run is started once, by the globalSetup, and so is a DynamoDB, if a test asks for one.
const config: ViteUserConfig = defineConfig({
  test: {
    include: ['test/**/*.test.ts'],
    globalSetup: ['test/support/server.ts', 'test/support/dynamodb-server.ts'],
    pool: 'forks',
    isolate: false,
    // Much of a run is waiting: for leases to end, for processes to die. Two cores serve five files at a time.
    maxWorkers: 5,
    testTimeout: 120_000,
    hookTimeout: 60_000,
  },
});

export default config;
