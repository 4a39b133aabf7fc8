import { type Embedded, startEmbedded } from '../../src/engine/postgres/embedded.ts';
import { memoryFolder } from './memory.ts';

/**
 * A server of the tests' own, in memory where there is room: the Postgres of the folder TEST_POSTGRES (with bin/, lib/ and
 * share/), else the one that is found.
 */
export function startTestServer(settings: Record<string, string>): Promise<Embedded> {
  const tree = process.env['TEST_POSTGRES'];
  return startEmbedded({ temp: memoryFolder(), settings, ...(tree ? { tree } : {}) });
}
