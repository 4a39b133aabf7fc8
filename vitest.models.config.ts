import { defineConfig, type ViteUserConfig } from 'vitest/config';
import './test/support/servers/without-certificates.ts';

/** Explorations, which `npm test` leaves out. */
export const EXPLORATIONS: string[] = [
  'test/matrix/*.test.ts',
  'test/engine/postgres/foreign/{parsers,settings,strangers}.test.ts',
  'test/http/redaction/hidden.test.ts',
  'test/faults/*/check/*.test.ts',
  'test/actor/dynamodb/model/*.test.ts',
  'test/queue/dynamodb/model/*.test.ts',
  'test/lock/model/model.test.ts',
  'test/queue/interleavings.test.ts',
  'test/queue/flow/{interleavings,killed,moving-children}.test.ts',
  'test/queue/group/model.test.ts',
  'test/actor/model/interleavings.test.ts',
];

// Explorations in full: every order of the steps of a model, every pair of moves, thousands of drawn histories, each caller at each route,
// each capability among strange functions, parsers and settings: `npm run test:models`.
// They fail with what they are about, a protocol or a table of the documents, and not with the machine's speed.
// They keep a core busy, and wait for nothing. Run by hand with the usual configuration, each makes the same part of itself every time.
const config: ViteUserConfig = defineConfig({
  test: {
    include: EXPLORATIONS,
    env: { PAWL_MODELS: '1' },
    globalSetup: ['test/support/servers/server.ts', 'test/support/servers/dynamodb-server.ts'],
    pool: 'forks',
    isolate: false,
    maxWorkers: 3,
    testTimeout: 120_000,
    hookTimeout: 60_000,
  },
});

export default config;
