import { SchemaMismatch } from '../../base/errors.ts';
import type { QueueIds } from '../store.ts';

/** The number of a kind. A job of a kind that no worker knows would never run. @throws SchemaMismatch */
export function kindIdOf(kind: string, { kindId }: Pick<QueueIds, 'kindId'>): number {
  const id = kindId.get(kind);
  if (id === undefined) throw new SchemaMismatch(`the database does not have the kind "${kind}" of this queue`);
  return id;
}
