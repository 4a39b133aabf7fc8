import { defineConfig, type ViteUserConfig } from 'vitest/config';

// In a real browser, against the built package: `npm run test:browser`. Each file has a browser and a scene of its own; much of
// what they do is waiting for what is live, so two go at a time.
const config: ViteUserConfig = defineConfig({
  test: {
    include: ['test/browser/**/*.browser.ts'],
    globalSetup: ['test/support/servers/server.ts', 'test/support/servers/dynamodb-server.ts'],
    pool: 'forks',
    maxWorkers: 2,
    testTimeout: 120_000,
    hookTimeout: 60_000,
  },
});

export default config;
