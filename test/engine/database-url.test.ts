import { expect, test } from 'vitest';
import { maskUrl } from '../../src/engine/database-url.ts';

test.each([
  ['postgres://ada:secret@db:5432/app', 'postgres://ada:***@db:5432/app'],
  [
    'postgres://ada@db/app?password=secret&sslmode=verify-full',
    'postgres://ada@db/app?password=***&sslmode=verify-full',
  ],
  ['postgres://db/app?sslpassword=secret', 'postgres://db/app?sslpassword=***'],
  ['postgres://ada:se:c@ret@/app?host=/run/pg', 'postgres://ada:***@/app?host=/run/pg'],
  ['host=db password=secret', 'host=db password=***'],
  ['postgres://ada@db/app', 'postgres://ada@db/app'],
])('a password is not shown: %s', (url, shown) => {
  expect(maskUrl(url)).toBe(shown);
});
