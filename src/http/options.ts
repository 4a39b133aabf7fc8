import type { Actors } from '../actor/index.ts';
import type { Duration } from '../base/duration.ts';
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
} from '../base/options.ts';
import { type Place, refusal } from '../base/refusal.ts';
import type { Capture } from '../capture/index.ts';
import type { Files } from '../files/index.ts';
import type { Queue } from '../queue/index.ts';
import type { DevStage } from './dev.ts';
import { type LinkOptions, links } from './links.ts';
import { isPasswordHash } from './password.ts';
import { type Grant, isPermission, type Permission, ROLES, type Role } from './permission.ts';
import { type Program, programShape } from './program.ts';

/** A caller that shows a secret with every request: `Authorization: Bearer …`. */
export interface TokenOptions {
  /** As the audit names it. */
  readonly name: string;
  /** At least 16 characters. */
  readonly token: string;
  /** Default `'viewer'`. */
  readonly role?: Role | undefined;
  readonly permissions?: readonly Permission[] | undefined;
}

/** A person who logs in on the dashboard. */
export interface UserOptions {
  readonly name: string;
  /** What `hashPassword()` or `pawl dashboard hash` made of the password. */
  readonly password: string;
  readonly role?: Role | undefined;
  readonly permissions?: readonly Permission[] | undefined;
}

/** Tokens of an identity provider, checked by the package jose. */
export interface JwtOptions {
  /** Where the provider publishes its keys. Either this or `secret`. */
  readonly jwks?: string | undefined;
  /** A shared secret, for HS256. */
  readonly secret?: string | undefined;
  readonly issuer: string;
  readonly audience: string;
  /** The claim that names a role of ours. Default `role`. */
  readonly roleClaim?: string | undefined;
  /** How long to wait for the provider's keys. Default `'5s'`. */
  readonly timeout?: Duration | undefined;
}

export interface AuthOptions {
  readonly tokens?: readonly TokenOptions[] | undefined;
  readonly users?: readonly UserOptions[] | undefined;
  readonly jwt?: JwtOptions | undefined;
  /** Your own rule: who it is, `undefined` for nobody (401), or a Response of your own, such as a redirect. */
  readonly authorize?: Authorize | undefined;
  /** Signs the cookies of users. Default: a random one, so logins end with the process and hold for no other. */
  readonly secret?: string | undefined;
  /** How long a login lasts. Default `'12h'`. */
  readonly session?: Duration | undefined;
  /**
   * What somebody on this machine may do without any of these: only when the connection comes from the loopback interface,
   * names it, and no proxy is seen. Default `'admin'` when nothing else is given, else `'none'`.
   */
  readonly loopback?: Role | 'none' | undefined;
}

export type Authorize = (request: Request) => Grant | Response | undefined | Promise<Grant | Response | undefined>;

export interface RedactOptions {
  /** Values under these keys, at any depth and in any case, are shown as "[redacted]". */
  readonly keys?: readonly string[] | undefined;
  /** Or your own: gets a copy, gives what may be seen. */
  readonly payload?: ((payload: unknown, of: { readonly queue: string; readonly kind: string }) => unknown) | undefined;
}

export interface HttpOptions {
  /** Where it is mounted, such as `/pawl`. Default: at the root. */
  readonly basePath?: string | undefined;
  readonly auth?: AuthOptions | undefined;
  /** Refuses everything that changes something, whoever asks. Default false. */
  readonly readOnly?: boolean | undefined;
  readonly redact?: RedactOptions | undefined;
  /** Serve the dashboard. Default true. */
  readonly dashboard?: boolean | undefined;
  /** Shown in the dashboard, so that nobody takes production for the test system. At most 40 characters. */
  readonly title?: string | undefined;
  /** Ways out of the dashboard's pages, such as to the logs of a job. */
  readonly links?: readonly LinkOptions[] | undefined;
  /** How long one statement of a request may take. Default `'5s'`. */
  readonly statementTimeout?: Duration | undefined;
  /** How often the database is asked for the live picture while anybody watches. Default `'2s'`. */
  readonly live?: Duration | undefined;
  /** The longest body. Default 1 MiB. */
  readonly bodyLimit?: number | undefined;
  /**
   * What `createFiles()` made, one for each namespace whose bytes can be read, written and swept here. Without it versions are
   * shown from the database alone.
   */
  readonly files?: Files | readonly Files[] | undefined;
  /** What `createCapture()` made, with its projections: so that they can be planned, installed and reconciled here. */
  readonly captures?: readonly Capture[] | undefined;
  /** What `createActors()` made: so that a turn can be run by hand here, in this process. */
  readonly actors?: Actors | readonly Actors[] | undefined;
  /** What `createQueue()` made: so that what is enqueued here is checked by the schemas of its kinds, and refused by field. */
  readonly queues?: readonly Queue[] | undefined;
  /** The longest file that can be sent here. Default 1 GiB. */
  readonly uploadLimit?: number | undefined;
  /** Requests of one caller: 200 at once and 50 each second by default. */
  readonly rate?: { readonly burst?: number | undefined; readonly perSecond?: number | undefined } | undefined;
  /** How long the audit is kept. Default `'365d'`. */
  readonly audit?: Duration | undefined;
  /** For `pawl dev`: accidents to cause, and what its examples are made of. Asked for each request. */
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
  };
  readonly dashboard: boolean;
  readonly title: string | undefined;
  readonly links: readonly LinkOptions[];
  readonly statementTimeout: number;
  readonly live: number;
  readonly bodyLimit: number;
  readonly uploadLimit: number;
  readonly rate: { readonly burst: number; readonly perSecond: number };
  readonly audit: number;
  readonly dev: HttpOptions['dev'];
}

export interface AuthSettings {
  readonly tokens: readonly (Grant & { readonly token: string })[];
  readonly users: readonly (Grant & { readonly password: string })[];
  readonly jwt:
    | (Omit<JwtOptions, 'roleClaim' | 'timeout'> & { readonly roleClaim: string; readonly timeout: number })
    | undefined;
  readonly authorize: Authorize | undefined;
  readonly secret: string | undefined;
  readonly session: number;
  readonly loopback: Role | 'none' | undefined;
}

const permissions: Check<readonly Permission[]> = list(
  custom('a permission', (value, place) => {
    if (!isPermission(value)) throw refusal(place, value, 'a permission; docs/http.md has the list');
    return value;
  }),
);

const grantShape = {
  name: text({ min: 1, max: 100 }),
  role: optional(oneOf(ROLES)),
  permissions: optional(permissions),
};

const hash = custom('what hashPassword() gives', (value: unknown, place: Place) => {
  if (typeof value !== 'string' || !isPasswordHash(value)) {
    // It may be the password itself, which no message should repeat.
    const words = 'what hashPassword() gives, not the password itself; the value is not shown';
    throw new InvalidInput(`${place.field} must be ${words}`, { field: place.field });
  }
  return value;
});

const url = custom('a URL', (value: unknown, place: Place) => {
  if (typeof value !== 'string' || !URL.canParse(value)) throw refusal(place, value, 'a URL');
  return value;
});

const basePath = custom(
  'a path such as "/pawl"',
  (value: unknown, place: Place) => {
    if (typeof value !== 'string' || !/^(\/[\w.~-]+)*\/?$/.test(value))
      throw refusal(place, value, 'a path such as "/pawl"');
    return value.replace(/\/$/, '');
  },
  { default: '' },
);

const shape = {
  basePath,
  auth: optional(
    object({
      tokens: list(object({ ...grantShape, token: text({ min: 16, max: 4096, secret: true }) }), { default: [] }),
      users: list(object({ ...grantShape, password: hash }), { default: [] }),
      jwt: optional(
        object({
          jwks: optional(url),
          secret: optional(text({ min: 32, secret: true })),
          issuer: text({ min: 1 }),
          audience: text({ min: 1 }),
          roleClaim: text({ min: 1, default: 'role' }),
          timeout: duration({ min: 1, max: '1m', default: '5s' }),
        }),
      ),
      authorize: optional(func<Authorize>()),
      secret: optional(text({ min: 32, secret: true })),
      session: duration({ min: '1m', max: '90d', default: '12h' }),
      loopback: optional(oneOf([...ROLES, 'none'])),
    }),
  ),
  readOnly: bool({ default: false }),
  redact: object({
    keys: list(text({ min: 1, max: 200 }), { default: [] }),
    payload: optional(func<NonNullable<RedactOptions['payload']>>()),
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
  audit: duration({ min: '1d', default: '365d' }),
  dev: optional(func<NonNullable<HttpOptions['dev']>>()),
};

/** @throws InvalidInput  an option that cannot be, or ways to get in that contradict each other */
export function readHttpOptions(options: HttpOptions): HttpSettings {
  const given = checkOptions('createHttp', options, shape);
  const jwt = given.auth?.jwt;
  if (jwt !== undefined && (jwt.jwks === undefined) === (jwt.secret === undefined)) {
    throw new InvalidInput('auth.jwt takes either jwks or secret', { field: 'auth.jwt' });
  }
  for (const grant of [...(given.auth?.tokens ?? []), ...(given.auth?.users ?? [])]) {
    if (grant.role !== undefined && grant.permissions !== undefined) {
      throw new InvalidInput(`"${grant.name}" has a role and permissions; give one of them`, { field: 'auth' });
    }
  }
  const names = (given.auth?.users ?? []).map(({ name }) => name);
  const twice = names.find((name, index) => names.indexOf(name) !== index);
  if (twice !== undefined) throw new InvalidInput(`user "${twice}" is given twice`, { field: 'auth.users' });
  return given;
}
