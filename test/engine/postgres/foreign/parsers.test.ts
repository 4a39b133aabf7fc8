import { describe, expect } from 'vitest';
import { freshDatabase } from '../../../support/database.ts';
import { MODELS, most } from '../../../support/long.ts';
import { spawnChild } from '../../../support/process.ts';
import { CAPABILITIES } from '../../../support/strange/capabilities.ts';
import { together } from '../../../support/together.ts';

/**
 * By their names in the child, each with what is played with it: the first one in the usual run. The first three parsers read differently
 * what a capability answers, the others single columns.
 */
const PARSERS = {
  'json as text': ['queue (lease)', 'actors'],
  'json with BigInt': ['actors'],
  'json with camelCase keys': ['queue (lease)'],
  'times as text': ['capture', 'queue (transaction)'],
  'times as objects': ['locks', 'capture'],
  'booleans as text': ['locks', 'queue (transaction)'],
  'numbers as BigInt and float': ['queue (transaction)', 'capture'],
};

describe.concurrent.for(Object.entries(PARSERS))('a program that reads %s', ([parser, usual]) => {
  const capabilities = Object.keys(CAPABILITIES);
  for (const capability of most(capabilities, ...(MODELS ? usual : usual.slice(0, 1)))) {
    together(`${capability}: what is written and read is the same`, async () => {
      for (const of of most(['all queries', 'its pool'], parser === 'json as text' ? 'its pool' : 'all queries')) {
        const { url } = await freshDatabase();
        const child = spawnChild('engine/postgres/foreign/parsers.child.ts', [url, parser, of, capability]);
        expect(await child.message()).toEqual({ problem: null });
      }
    });
  }
});
