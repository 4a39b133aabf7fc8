import { defineConfig, type ViteUserConfig } from 'vitest/config';
import './test/support/servers/without-certificates.ts';

// The checkers of the schedules of faults, each shown to find the bugs that are planted: `npm run test:plants`. A schedule is a
// handful of processes, so few go at a time.
const config: ViteUserConfig = defineConfig({
  test: {
    include: ['test/faults/**/*.plants.ts'],
    globalSetup: ['test/support/servers/server.ts', 'test/support/servers/dynamodb-server.ts'],
    pool: 'forks',
    maxWorkers: 2,
    maxConcurrency: 4,
    hookTimeout: 60_000,
  },
});

export default config;
