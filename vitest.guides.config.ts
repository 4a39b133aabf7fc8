import { defineConfig, type ViteUserConfig } from 'vitest/config';
import './test/support/servers/without-certificates.ts';

/** Run with nothing else. */
export const ONLY_GUIDES: string[] = ['test/docs.test.ts', 'test/{examples,package}/**/*.test.ts'];

/** What `npm run test:guides` runs, and `npm test` leaves out. */
export const GUIDES: string[] = [
  ...ONLY_GUIDES,
  'test/cli/**/*.test.ts',
  'test/mistakes/{arguments,away,bundle}.test.ts',
  'test/testing/**/*.test.ts',
  'test/engine/postgres/embedded/*.test.ts',
];

// What a user meets first, as it was built: the programs of the documents, the examples, the command line, the package, the embedded Postgres,
// and the kit for tests: `npm run test:guides`.
const config: ViteUserConfig = defineConfig({
  test: {
    include: GUIDES,
    // npm run test:dynamodb
    exclude: ['test/cli/**/*dynamodb*', 'test/cli/**/*dynamodb*/**'],
    globalSetup: ['test/support/servers/server.ts', 'test/support/servers/dynamodb-server.ts'],
    server: { deps: { external: [/\/dist(-examples)?\//] } },
    pool: 'forks',
    maxWorkers: 3,
    testTimeout: 120_000,
    hookTimeout: 60_000,
  },
});

export default config;
