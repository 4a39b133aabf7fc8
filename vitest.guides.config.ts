import { defineConfig, type ViteUserConfig } from 'vitest/config';
import './test/support/servers/without-certificates.ts';

// What a user meets first, as it was built: the programs of the documents, the examples, and the package: `npm run test:guides`.
const config: ViteUserConfig = defineConfig({
  test: {
    include: ['test/docs.test.ts', 'test/examples/**/*.test.ts', 'test/package/**/*.test.ts'],
    globalSetup: ['test/support/servers/server.ts', 'test/support/servers/dynamodb-server.ts'],
    server: { deps: { external: [/\/dist(-examples)?\//] } },
    pool: 'forks',
    maxWorkers: 3,
    testTimeout: 120_000,
    hookTimeout: 60_000,
  },
});

export default config;
