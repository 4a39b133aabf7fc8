import { afterAll, beforeAll } from 'vitest';
import { freshDatabase } from '../support/database.ts';
import { SqlSession } from './sql-session.ts';

/**
 * So many sessions on a database of this file's own, from before its other preparations until after its tests. @returns the one of an
 * index, which counts from 0
 */
export function sessionsOfFile(count: number): (index: number) => SqlSession {
  let sessions: SqlSession[] = [];
  beforeAll(async () => {
    const { url } = await freshDatabase();
    sessions = await Promise.all(Array.from({ length: count }, () => SqlSession.open(url)));
  });
  afterAll(() => Promise.all(sessions.map((session) => session.end())));
  return (index) => {
    const session = sessions[index];
    if (session === undefined) throw new Error(`there is no session ${index}`);
    return session;
  };
}
