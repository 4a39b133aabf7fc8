import { isObject } from '../../base/options/shape.ts';

/** All permissions. The server enforces each at the route that needs it. */
export const PERMISSIONS = [
  'view',
  'payload:read',
  'error:read',
  'file:read',
  'metrics:read',
  'audit:read',
  'queue:pause',
  'queue:remove',
  'job:enqueue',
  'job:retry',
  'job:cancel',
  'job:update',
  'job:move',
  'job:erase',
  'job:bulk',
  'job:work',
  'worker:release',
  'schedule:pause',
  'schedule:write',
  'lock:hold',
  'lock:break',
  'actor:signal',
  'actor:pause',
  'actor:work',
  'actor:move',
  'actor:destroy',
  'page:ack',
  'page:resolve',
  'capture:repair',
  'capture:install',
  'capture:detach',
  'file:write',
  'file:sweep',
  'file:remove',
  'file:repair',
  'dev',
] as const;

export type Permission = (typeof PERMISSIONS)[number];

/** Ready-made sets of permissions. */
export const ROLES = ['viewer', 'operator', 'admin'] as const;
export type Role = (typeof ROLES)[number];

/** The permissions for reading: the only ones in read-only mode. */
const LOOKING: readonly Permission[] = [
  'view',
  'payload:read',
  'error:read',
  'file:read',
  'metrics:read',
  'audit:read',
];

const OF_ROLE: Readonly<Record<Role, readonly Permission[]>> = {
  viewer: ['view', 'payload:read', 'error:read', 'file:read', 'metrics:read'],
  operator: [
    'view',
    'payload:read',
    'error:read',
    'file:read',
    'metrics:read',
    'queue:pause',
    'job:enqueue',
    'job:retry',
    'job:cancel',
    'job:update',
    'job:move',
    'job:bulk',
    'worker:release',
    'schedule:pause',
    'lock:hold',
    'actor:signal',
    'actor:pause',
    'page:ack',
    'page:resolve',
    'capture:repair',
    'file:write',
    'file:sweep',
  ],
  admin: PERMISSIONS,
};

/** How a caller was identified. Credentials that a browser sends with every request on its own need more care than a header. */
export type IdentitySource = 'loopback' | 'token' | 'session' | 'jwt' | 'authorize';

/** A caller, and its permissions. Only `principalOf()` makes one. */
export interface Principal {
  /** The name in the audit. */
  readonly name: string;
  readonly role: Role | undefined;
  readonly permissions: ReadonlySet<Permission>;
  readonly by: IdentitySource;
  /** When its credential ends, in Unix time; its streams end then. Undefined: it does not end. */
  readonly until: number | undefined;
}

export interface Identity {
  /** 1 to 100 characters; the name in the audit. */
  readonly name: string;
  /** Pass either this or permissions. */
  readonly role?: Role | undefined;
  readonly permissions?: readonly Permission[] | undefined;
}

export interface Recognition {
  readonly by: IdentitySource;
  readonly isReadOnly: boolean;
  readonly until?: number | undefined;
}

/**
 * The one gate: it makes every caller. It checks the whole grant, which may come from the user's program, or from a token of
 * another party.
 * @returns undefined unless it is an object with a name and either a known role or known permissions
 */
export function principalOf(grant: unknown, { by, isReadOnly, until }: Recognition): Principal | undefined {
  if (!isObject(grant)) return undefined;
  const { name, role, permissions } = grant;
  if (typeof name !== 'string' || !isName(name)) return undefined;
  if ((role === undefined) === (permissions === undefined)) return undefined;
  const granted = role === undefined ? permissions : isRole(role) ? OF_ROLE[role] : undefined;
  if (!Array.isArray(granted) || !granted.every(isPermission)) return undefined;
  const left = isReadOnly ? granted.filter((permission) => !changes(permission)) : granted;
  return { name, role: isRole(role) ? role : undefined, permissions: new Set(left), by, until };
}

/** Whether a log and an audit can store and show the name unchanged. */
export function isName(name: string): boolean {
  return name.length >= 1 && name.length <= 100 && !/[\p{Cc}\p{Surrogate}]/u.test(name);
}

/** The lowest role that has a permission. */
export function leastRole(permission: Permission): Role {
  return ROLES.find((role) => OF_ROLE[role].includes(permission)) ?? 'admin';
}

export function isPermission(value: unknown): value is Permission {
  return PERMISSIONS.some((known) => known === value);
}

export function isRole(value: unknown): value is Role {
  return ROLES.some((known) => known === value);
}

/** Whether a permission changes something. */
export function changes(permission: Permission): boolean {
  return !LOOKING.includes(permission);
}
