import { randomBytes, scrypt, timingSafeEqual } from 'node:crypto';
import { InvalidInput } from '../../base/errors.ts';
import { HttpRefusal } from '../protocol/failure.ts';

/** OWASP's first choice for scrypt in 2025: 128 MiB and about 0.2 s for one guess. */
const COST = { N: 2 ** 17, r: 8, p: 1 } as const;
const KEY_BYTES = 32;
const FORM = /^scrypt\$(\d{1,2})\$(\d{1,3})\$(\d{1,2})\$([\w-]{22,})\$([\w-]{43})$/;

/**
 * A hash to store instead of a password: `auth: { users: [{ name: 'ada', password: 'scrypt$…' }] }`. A config file may contain
 * it, because the password cannot be computed from it.
 */
export async function hashPassword(password: string): Promise<string> {
  if (typeof password !== 'string' || password.length < 8 || password.length > 1000) {
    throw new InvalidInput('a password must have 8 to 1000 characters', { field: 'password' });
  }
  const salt = randomBytes(16);
  const key = await inTurn(hashing, () => derive(password, salt, COST));
  return ['scrypt', Math.log2(COST.N), COST.r, COST.p, salt.toString('base64url'), key.toString('base64url')].join('$');
}

/**
 * Takes the same time for every password, right or wrong. Attempts from a browser in which the name logged in before go first.
 * @throws HttpRefusal  busy: too many callers try a password now
 */
export function verifyPassword(password: string, hash: string, isKnownDevice: boolean): Promise<boolean> {
  const queue = isKnownDevice ? known : strangers;
  if (queue.length >= MOST_WAITING) {
    throw new HttpRefusal('busy', 'too many passwords are being tried just now; try again in 2 s', {
      'retry-after': '2',
    });
  }
  return inTurn(queue, () => verify(password, hash));
}

async function verify(password: string, hash: string): Promise<boolean> {
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

function derive(password: string, salt: Buffer, cost: Cost): Promise<Buffer> {
  return new Promise((resolve, reject) => {
    const options = { ...cost, maxmem: 256 * cost.N * cost.r };
    scrypt(password.normalize('NFC'), salt, KEY_BYTES, options, (error, key) => (error ? reject(error) : resolve(key)));
  });
}

type Step = () => Promise<void>;

/**
 * If this many logins wait already, the next one is refused at once, with the time for another attempt: people do not wait longer
 * than a few seconds.
 */
const MOST_WAITING = 4;
const known: Step[] = [];
const hashing: Step[] = [];
const strangers: Step[] = [];
let isRunning = false;

/** Runs one step after another: each takes 128 MiB, and parallel guesses must not take all memory. */
function inTurn<T>(queue: Step[], work: () => Promise<T>): Promise<T> {
  const done = new Promise<T>((resolve, reject) => {
    queue.push(() => work().then(resolve, reject));
  });
  if (!isRunning) void runAll();
  return done;
}

/** Never rejects: the caller of a step gets its error. */
async function runAll(): Promise<void> {
  isRunning = true;
  for (let next = takeNext(); next !== undefined; next = takeNext()) await next();
  isRunning = false;
}

function takeNext(): Step | undefined {
  return known.shift() ?? hashing.shift() ?? strangers.shift();
}
