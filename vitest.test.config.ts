import { mergeConfig, type ViteUserConfig } from 'vitest/config';
import config from './vitest.config.ts';
import { GUIDES } from './vitest.guides.config.ts';
import { EXPLORATIONS } from './vitest.models.config.ts';

/** Each has a command of its own. */
const HTTP = 'test/http/**';
const DYNAMODB = ['test/**/*dynamodb*', 'test/**/*dynamodb*/**'];

// The promises of the engine and of each capability on Postgres: `npm test`.
const promises: ViteUserConfig = mergeConfig(config, {
  test: { exclude: [...GUIDES, ...EXPLORATIONS, HTTP, ...DYNAMODB] },
});

export default promises;
