import { defineConfig, type ViteUserConfig } from 'vitest/config';

// In a real browser, against the built package: `npm run test:browser`. The browser is one for all files.
const config: ViteUserConfig = defineConfig({
  test: {
    include: ['test/browser/**/*.browser.ts'],
    globalSetup: ['test/support/server.ts'],
    pool: 'forks',
    maxWorkers: 1,
    testTimeout: 120_000,
    hookTimeout: 60_000,
  },
});

export default config;
