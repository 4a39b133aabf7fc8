import type pg from 'pg';
import type { Note } from '../member/member.ts';
import type { ClientEvent, DocumentRow, FilesHistory, ObjectRow, Wish } from './history.ts';

const MS = (column: string): string => `(extract(epoch from ${column}) * 1000)::float8`;

/** Reads in one snapshot: otherwise the tables would not fit together. */
export async function readTables(eye: pg.Pool): Promise<Pick<FilesHistory, 'rows' | 'documents' | 'committed'>> {
  const client = await eye.connect();
  const all = async <T extends object>(sql: string): Promise<T[]> => (await client.query<T>(sql)).rows;
  try {
    await client.query('begin isolation level repeatable read read only');
    const rows = await all<ObjectRow>(`
      select r.object::text, r.id, r.version::int, r.state, encode(r.sha256, 'hex') as sha256,
        ${MS('r.retired_at')} as "retiredMs", ${MS('r.deleted_at')} as "deletedMs"
      from pawl.file_object r order by r.id, r.version`);
    const documents = await all<DocumentRow>('select d.id, d.version::int, d.object::text from pawl.file_document d');
    const committed = await all<{ op: string }>('select c.op from faults_committed c');
    await client.query('commit');
    return { rows, documents, committed: committed.map(({ op }) => op) };
  } finally {
    client.release();
  }
}

/** Makes operations of the notes of one client. */
export function toWishes(events: readonly Note<ClientEvent>[]): Wish[] {
  return events.flatMap((asked) => {
    if (asked.do !== 'ask') return [];
    const mine = events.filter((event) => 'op' in event && event.op === asked.op);
    const { op, deed, id, sha256, at: askedAt } = asked;
    return [
      {
        op,
        deed,
        id,
        sha256,
        askedAt,
        expected: mine.flatMap((event) => (event.do === 'expect' ? [event.version] : []))[0],
        told: mine.flatMap((event) => (event.do === 'told' ? [event] : []))[0],
        got: mine.flatMap((event) => (event.do === 'got' ? [event] : []))[0],
        failed: mine.flatMap((event) => (event.do === 'failed' ? [event] : []))[0],
      },
    ];
  });
}
