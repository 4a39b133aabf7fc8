import { afterAll, beforeAll, expect, test } from 'vitest';
import { type PostgresEngine, postgres } from '../../../src/engine/postgres/index.ts';
import { createHttp, type LinkOptions } from '../../../src/http/index.ts';
import { freshDatabase } from '../../support/database.ts';

let engine: PostgresEngine;
beforeAll(async () => {
  engine = postgres((await freshDatabase()).url);
});
afterAll(() => engine.stop());

const logs = { title: 'Logs', of: 'job', url: 'https://logs.example.org/?q={id}&from={from}' } as const;
const auth = { tokens: [{ name: 'ada', token: 'a-token-that-is-long-enough', role: 'viewer' as const }] };

test('links out of the dashboard are in the answer for its user', async () => {
  await using pawl = createHttp(engine, { auth, links: [logs] });
  const request = new Request('http://127.0.0.1/api/v1/me', {
    headers: { authorization: `Bearer ${auth.tokens[0]?.token}` },
  });
  expect(await (await pawl(request)).json()).toMatchObject({ links: [logs] });
});

test.each<[string, RegExp]>([
  ['javascript:alert({id})', /begins with https/],
  ['data:text/html,{id}', /begins with https/],
  ['/logs/{id}', /begins with https/],
  ['https://logs.example.org/{job}', /without \{job\}; known are \{id\}/],
])('a way out to %s is refused, and it is said why', (url, why) => {
  const links: LinkOptions[] = [{ ...logs, url }];
  expect(() => createHttp(engine, { auth, links })).toThrow(why);
});
