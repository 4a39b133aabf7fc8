import { createHash } from 'node:crypto';
import type { Files } from '../../src/files/index.ts';
import type { TestStore } from './world.ts';

/**
 * The differences between the rows and the store, in words; empty when the store has the right object for every row, and no
 * other.
 */
export async function problemsOf(files: Files, store: TestStore): Promise<string[]> {
  const problems: string[] = [];
  const wanted = new Set<string>();
  for (const { id } of await files.list({ limit: 10_000 })) {
    for (const past of await files.history(id)) {
      if (past.state !== 'live' && past.state !== 'retired') continue;
      wanted.add(past.object);
      const bytes = await store.bytes(past.object).catch(() => undefined);
      if (bytes === undefined) problems.push(`${id} version ${past.version} has no object`);
      else if (bytes.length !== past.size) problems.push(`${id} version ${past.version} has another length`);
      else if (createHash('sha256').update(bytes).digest('hex') !== past.sha256) {
        problems.push(`${id} version ${past.version} has other bytes`);
      }
    }
  }
  for (const name of await store.names()) if (!wanted.has(name)) problems.push(`${name} belongs to no version`);
  return problems;
}
