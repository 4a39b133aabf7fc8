import { randomBytes, scrypt, timingSafeEqual } from 'node:crypto';
import { InvalidInput } from '../base/errors.ts';

/** OWASP's first choice for scrypt in 2025: 128 MiB and some 0.2 s for one guess. */
const COST = { N: 2 ** 17, r: 8, p: 1 } as const;
const KEY_BYTES = 32;
const FORM = /^scrypt\$(\d{1,2})\$(\d{1,3})\$(\d{1,2})\$([\w-]{22,})\$([\w-]{43})$/;

/**
 * What to keep instead of a password: `auth: { users: [{ name: 'ada', password: 'scrypt$…' }] }`. It can be written into a
 * config file; the password cannot be had back from it.
 */
export async function hashPassword(password: string): Promise<string> {
  if (typeof password !== 'string' || password.length < 8 || password.length > 1000) {
    throw new InvalidInput('a password must have 8 to 1000 characters', { field: 'password' });
  }
  const salt = randomBytes(16);
  const key = await derive(password, salt, COST);
  return ['scrypt', Math.log2(COST.N), COST.r, COST.p, salt.toString('base64url'), key.toString('base64url')].join('$');
}

/** Takes the same time for every password, right or wrong. */
export async function verifyPassword(password: string, hash: string): Promise<boolean> {
  const [, logN, r, p, salt = '', key = ''] = FORM.exec(hash) ?? [];
  const cost = { N: 2 ** Number(logN), r: Number(r), p: Number(p) };
  const wanted = Buffer.from(key, 'base64url');
  const given = await derive(password, Buffer.from(salt, 'base64url'), cost);
  return timingSafeEqual(given, wanted);
}

export function isPasswordHash(value: string): boolean {
  const [, logN, r, p] = FORM.exec(value) ?? [];
  return logN !== undefined && Number(logN) >= 14 && Number(logN) <= 20 && Number(r) <= 32 && Number(p) <= 16;
}

interface Cost {
  readonly N: number;
  readonly r: number;
  readonly p: number;
}

/** One after another: each takes 128 MiB, and whoever guesses in parallel must not get all of the memory. */
let turn: Promise<unknown> = Promise.resolve();

function derive(password: string, salt: Buffer, cost: Cost): Promise<Buffer> {
  const run = (): Promise<Buffer> =>
    new Promise((resolve, reject) => {
      const options = { ...cost, maxmem: 256 * cost.N * cost.r };
      scrypt(password.normalize('NFC'), salt, KEY_BYTES, options, (error, key) =>
        error ? reject(error) : resolve(key),
      );
    });
  const mine = turn.then(run, run);
  turn = mine.catch(() => {});
  return mine;
}
