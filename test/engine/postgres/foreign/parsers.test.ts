import { describe, expect, test } from 'vitest';
import { freshDatabase } from '../../../support/database.ts';
import { most } from '../../../support/long.ts';
import { spawnChild } from '../../../support/process.ts';
import { CAPABILITIES } from '../../../support/strange/capabilities.ts';

/** By their names in the child. The first three are read differently by what a capability answers, the others by single columns. */
const PARSERS = [
  'json as text',
  'json with BigInt',
  'json with camelCase keys',
  'times as text',
  'times as objects',
  'booleans as text',
  'numbers as BigInt and float',
];

describe.for(PARSERS)('a program that reads %s', (parser) => {
  const capabilities = Object.keys(CAPABILITIES);
  const usual = parser.startsWith('json') ? ['queue (lease)', 'actors'] : ['queue (transaction)', 'locks', 'capture'];
  test.for(most(capabilities, ...usual))('%s: what is written and read is the same', async (capability) => {
    for (const of of most(['all queries', 'its pool'], parser === 'json as text' ? 'its pool' : 'all queries')) {
      const { url } = await freshDatabase();
      const child = spawnChild('engine/postgres/foreign/parsers.child.ts', [url, parser, of, capability]);
      expect(await child.message()).toEqual({ problem: null });
    }
  });
});
