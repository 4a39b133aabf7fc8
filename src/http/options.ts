import type { Actors } from '../actor/index.ts';
import { InvalidInput } from '../base/errors.ts';
import {
  bool,
  type Check,
  checkOptions,
  custom,
  duration,
  func,
  integer,
  list,
  object,
  oneOf,
  optional,
  text,
} from '../base/options/options.ts';
import { type OptionPath, refusal } from '../base/options/refusal.ts';
import type { Duration } from '../base/time/duration.ts';
import type { Capture } from '../capture/index.ts';
import type { Files } from '../files/index.ts';
import type { Queue } from '../queue/index.ts';
import { isPasswordHash } from './auth/password.ts';
import { isThisMachine } from './auth/peer.ts';
import { type Identity, isPermission, type Permission, ROLES, type Role } from './auth/permission.ts';
import type { DevStage } from './dev.ts';
import { type LinkOptions, links } from './links.ts';
import { type Program, programShape } from './program.ts';

/** A caller that shows a secret with every request: `Authorization: Bearer …`. */
export interface TokenOptions {
  /** The name of the caller in the audit. */
  readonly name: string;
  /** At least 16 characters. */
  readonly token: string;
  /** Pass either this or permissions. */
  readonly role?: Role | undefined;
  readonly permissions?: readonly Permission[] | undefined;
  /**
   * True: an address may contain the token, `/?token=…`; the answer then sets a cookie. It is for a token that a program
   * creates at each start and prints for the person in front of it, because browser histories and the logs of proxies keep
   * addresses. Default false.
   */
  readonly inUrl?: boolean | undefined;
}

/** A person who logs in on the dashboard. */
export interface UserOptions {
  readonly name: string;
  /** The output of `hashPassword()` or `pawl dashboard hash` for the password. */
  readonly password: string;
  /** Pass either this or permissions. */
  readonly role?: Role | undefined;
  readonly permissions?: readonly Permission[] | undefined;
}

/** Tokens of an identity provider, checked by the package jose. They must have a subject (`sub`) and an end (`exp`). */
export interface JwtOptions {
  /** The address of the provider's keys: https, or http on this machine. Pass either this or `secret`. */
  readonly jwks?: string | undefined;
  /** A shared secret, for HS256. */
  readonly secret?: string | undefined;
  readonly issuer: string;
  readonly audience: string;
  /** The claim that names one of Pawl's roles. Default `role`. */
  readonly roleClaim?: string | undefined;
  /** The longest time since a token was issued (`iat`), whatever its `exp` says. Default: no limit. */
  readonly maxAge?: Duration | undefined;
  /** The largest difference between the clocks of the provider and of this machine. Default `'30s'`. */
  readonly clockTolerance?: Duration | undefined;
  /** How long to wait for the provider's keys. Default `'5s'`. */
  readonly timeout?: Duration | undefined;
}

export interface AuthOptions {
  readonly tokens?: readonly TokenOptions[] | undefined;
  readonly users?: readonly UserOptions[] | undefined;
  readonly jwt?: JwtOptions | undefined;
  /**
   * Your own rule. It returns the identity of the caller, `undefined` for a stranger (401), or a Response of your own, such as a
   * redirect. Any other value means a stranger, too. A stream calls it again every minute, with only the headers.
   */
  readonly authorize?: Authorize | undefined;
  /**
   * Signs the cookies of sessions. Default: a random secret, so logins end with the process and are valid for no other process.
   */
  readonly secret?: string | undefined;
  /** How long a login lasts. Default `'12h'`. */
  readonly session?: Duration | undefined;
  /**
   * Every caller whose connection comes from the loopback interface gets this role, without credentials. That is every user and
   * every program of this machine, and **every caller at all** if a reverse proxy, `ssh -R` or `kubectl port-forward` runs on it:
   * this server cannot distinguish nginx with its defaults from a browser. Default: no right at all.
   */
  readonly dangerouslyTrustLoopback?: Role | undefined;
}

export type Authorize = (
  request: Request,
) => Identity | Response | undefined | Promise<Identity | Response | undefined>;

export interface RedactOptions {
  /** Values under these keys, at any depth and in any case, are shown as "[redacted]". */
  readonly keys?: readonly string[] | undefined;
  /** Or your own function: it gets a copy of the payload, and returns the part that may be shown. */
  readonly payload?: ((payload: unknown, of: { readonly queue: string; readonly kind: string }) => unknown) | undefined;
  /**
   * The same for errors and other texts that may quote a payload. By default, values of `keys` are removed from them if they are
   * written as `key: value`, `key=value` or JSON. With a `payload` of your own, and without this function, no such text is shown.
   */
  readonly error?: ((text: string, of: { readonly queue: string; readonly kind: string }) => string) | undefined;
  /**
   * True: a search finds words in payloads and errors anyway. Such a search can find out hidden values, letter by letter. Default
   * false.
   */
  readonly search?: boolean | undefined;
}

export interface HttpOptions {
  /** The path of the mount point, such as `/pawl`. Default: the root. */
  readonly basePath?: string | undefined;
  readonly auth?: AuthOptions | undefined;
  /** Refuses every request that changes something, for every caller. Default false. */
  readonly readOnly?: boolean | undefined;
  readonly redact?: RedactOptions | undefined;
  /** Serve the dashboard. Default true. */
  readonly dashboard?: boolean | undefined;
  /** Shown in the dashboard, so that people do not take production for the test system. At most 40 characters. */
  readonly title?: string | undefined;
  /** Links from the dashboard's pages to other programs, such as to the logs of a job. */
  readonly links?: readonly LinkOptions[] | undefined;
  /** How long one statement of a request may take. Default `'5s'`. */
  readonly statementTimeout?: Duration | undefined;
  /** How often the database is read for the live picture while a client watches. Default `'2s'`. */
  readonly live?: Duration | undefined;
  /** The longest body. Default 1 MiB. */
  readonly bodyLimit?: number | undefined;
  /**
   * Results of `createFiles()`, one for each namespace whose bytes can be read, written and swept here. Without it, versions are
   * shown from the database only.
   */
  readonly files?: Files | readonly Files[] | undefined;
  /** Results of `createCapture()`, with their projections, which can then be planned, installed and reconciled here. */
  readonly captures?: readonly Capture[] | undefined;
  /** Results of `createActors()`; a turn can then be run by hand here, in this process. */
  readonly actors?: Actors | readonly Actors[] | undefined;
  /**
   * Results of `createQueue()`. The schemas of their kinds then check jobs that are enqueued here, and a refusal names the field.
   */
  readonly queues?: readonly Queue[] | undefined;
  /** The longest file that can be uploaded here. Default 1 GiB. */
  readonly uploadLimit?: number | undefined;
  /** Requests of one caller: 200 at once and 50 each second by default. */
  readonly rate?: { readonly burst?: number | undefined; readonly perSecond?: number | undefined } | undefined;
  /** Live streams that are open at once: 10 of one caller and 1,000 of this process by default. */
  readonly streams?: { readonly perCaller?: number | undefined; readonly most?: number | undefined } | undefined;
  /** How long the audit is kept. Default `'365d'`. */
  readonly audit?: Duration | undefined;
  /** For `pawl dev`: accidents to cause, and the parts of its examples. Called for each request. */
  readonly dev?: (() => DevStage) | undefined;
}

/** The options, checked and complete; durations in milliseconds. */
export interface HttpSettings extends Program {
  readonly basePath: string;
  readonly auth: AuthSettings | undefined;
  readonly readOnly: boolean;
  readonly redact: {
    readonly keys: readonly string[];
    readonly payload: RedactOptions['payload'];
    readonly error: RedactOptions['error'];
    readonly search: boolean;
  };
  readonly dashboard: boolean;
  readonly title: string | undefined;
  readonly links: readonly LinkOptions[];
  readonly statementTimeout: number;
  readonly live: number;
  readonly bodyLimit: number;
  readonly uploadLimit: number;
  readonly rate: { readonly burst: number; readonly perSecond: number };
  readonly streams: { readonly perCaller: number; readonly most: number };
  readonly audit: number;
  readonly dev: HttpOptions['dev'];
}

export interface AuthSettings {
  readonly tokens: readonly (Identity & { readonly token: string; readonly inUrl: boolean })[];
  readonly users: readonly (Identity & { readonly password: string })[];
  readonly jwt: JwtSettings | undefined;
  readonly authorize: Authorize | undefined;
  readonly secret: string | undefined;
  readonly session: number;
  readonly dangerouslyTrustLoopback: Role | undefined;
}

export interface JwtSettings {
  readonly jwks: string | undefined;
  readonly secret: string | undefined;
  readonly issuer: string;
  readonly audience: string;
  readonly roleClaim: string;
  readonly maxAge: number | undefined;
  readonly clockTolerance: number;
  readonly timeout: number;
}

const permissions: Check<readonly Permission[]> = list(
  custom('a permission', (value, place) => {
    if (!isPermission(value)) throw refusal(place, value, 'a permission; docs/http.md has the list');
    return value;
  }),
);

const grantShape = {
  name: text({ min: 1, max: 100, pattern: [/^\P{Cc}*$/u, 'a string without control characters'] }),
  role: optional(oneOf(ROLES)),
  permissions: optional(permissions),
};

const hash = custom('the result of hashPassword()', (value: unknown, place: OptionPath) => {
  if (typeof value !== 'string' || !isPasswordHash(value)) {
    // The value may be the password itself, which no message should repeat.
    const words = 'the result of hashPassword(), not the password itself; the value is not shown';
    throw new InvalidInput(`${place.field} must be ${words}`, { field: place.field });
  }
  return value;
});

const keysUrl = custom('a URL of https', (value: unknown, place: OptionPath) => {
  const given = typeof value === 'string' && URL.canParse(value) ? new URL(value) : undefined;
  // With http, any machine on the way can answer with keys of its own.
  const isSafe = given?.protocol === 'https:' || (given?.protocol === 'http:' && isThisMachine(given));
  if (typeof value !== 'string' || !isSafe) throw refusal(place, value, 'a URL of https, or of http on this machine');
  return value;
});

const basePath = custom(
  'a path such as "/pawl"',
  (value: unknown, place: OptionPath) => {
    if (typeof value !== 'string' || !/^(\/[\w.~-]+)*\/?$/.test(value))
      throw refusal(place, value, 'a path such as "/pawl"');
    return value.replace(/\/$/, '');
  },
  { default: '' },
);

/** The characters that a header can carry after `Bearer`: a token with a space would never be recognised. */
const TOKEN = [/^[!-~]+$/, 'one word of visible ASCII'] as const;

const shape = {
  basePath,
  auth: optional(
    object({
      tokens: list(
        object({
          ...grantShape,
          token: text({ min: 16, max: 4096, secret: true, pattern: TOKEN }),
          inUrl: bool({ default: false }),
        }),
        { default: [] },
      ),
      users: list(object({ ...grantShape, password: hash }), { default: [] }),
      jwt: optional(
        object({
          jwks: optional(keysUrl),
          secret: optional(text({ min: 32, secret: true })),
          issuer: text({ min: 1 }),
          audience: text({ min: 1 }),
          roleClaim: text({ min: 1, default: 'role' }),
          maxAge: optional(duration({ min: '1s' })),
          clockTolerance: duration({ max: '10m', default: '30s' }),
          timeout: duration({ min: 1, max: '1m', default: '5s' }),
        }),
      ),
      authorize: optional(func<Authorize>()),
      secret: optional(text({ min: 32, secret: true })),
      session: duration({ min: '1m', max: '90d', default: '12h' }),
      dangerouslyTrustLoopback: optional(oneOf(ROLES)),
    }),
  ),
  readOnly: bool({ default: false }),
  redact: object({
    keys: list(text({ min: 1, max: 200 }), { default: [] }),
    payload: optional(func<NonNullable<RedactOptions['payload']>>()),
    error: optional(func<NonNullable<RedactOptions['error']>>()),
    search: bool({ default: false }),
  }),
  dashboard: bool({ default: true }),
  title: optional(text({ min: 1, max: 40 })),
  links,
  statementTimeout: duration({ min: '100ms', max: '5m', default: '5s' }),
  live: duration({ min: '250ms', max: '1m', default: '2s' }),
  bodyLimit: integer({ min: 1024, max: 64 * 1024 * 1024, default: 1024 * 1024 }),
  ...programShape,
  uploadLimit: integer({ min: 0, max: 64 * 1024 ** 3, default: 1024 ** 3 }),
  rate: object({
    burst: integer({ min: 1, max: 1_000_000, default: 200 }),
    perSecond: integer({ min: 1, max: 1_000_000, default: 50 }),
  }),
  streams: object({
    perCaller: integer({ min: 1, max: 100_000, default: 10 }),
    most: integer({ min: 1, max: 100_000, default: 1000 }),
  }),
  audit: duration({ min: '1d', default: '365d' }),
  dev: optional(func<NonNullable<HttpOptions['dev']>>()),
};

/** @throws InvalidInput  an option is impossible, or two ways to log in contradict each other */
export function readHttpOptions(options: HttpOptions): HttpSettings {
  const given = checkOptions('createHttp', options, shape);
  const jwt = given.auth?.jwt;
  if (jwt !== undefined && (jwt.jwks === undefined) === (jwt.secret === undefined)) {
    throw new InvalidInput('auth.jwt takes either jwks or secret', { field: 'auth.jwt' });
  }
  for (const grant of [...(given.auth?.tokens ?? []), ...(given.auth?.users ?? [])]) {
    if ((grant.role === undefined) !== (grant.permissions === undefined)) continue;
    const what = grant.role === undefined ? 'neither a role nor permissions' : 'a role and permissions';
    throw new InvalidInput(`"${grant.name}" has ${what}; give one of them`, { field: 'auth' });
  }
  const names = (given.auth?.users ?? []).map(({ name }) => name);
  const twice = names.find((name, index) => names.indexOf(name) !== index);
  if (twice !== undefined) throw new InvalidInput(`user "${twice}" is given twice`, { field: 'auth.users' });
  return given;
}
