/** Everything that can be allowed, one by one. Each is enforced by the server at the route that needs it. */
export const PERMISSIONS = [
  'view',
  'payload:read',
  'file:read',
  'metrics:read',
  'audit:read',
  'queue:pause',
  'job:enqueue',
  'job:retry',
  'job:cancel',
  'job:bulk',
  'schedule:write',
  'lock:hold',
  'lock:break',
  'actor:signal',
  'actor:pause',
  'actor:work',
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

/** What only looks: all that is left in read-only mode. */
const LOOKING: readonly Permission[] = ['view', 'payload:read', 'file:read', 'metrics:read', 'audit:read'];

const OF_ROLE: Readonly<Record<Role, readonly Permission[]>> = {
  viewer: ['view', 'payload:read', 'file:read', 'metrics:read'],
  operator: [
    'view',
    'payload:read',
    'file:read',
    'metrics:read',
    'queue:pause',
    'job:enqueue',
    'job:retry',
    'job:cancel',
    'job:bulk',
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

/** Who asks, and what he may do. */
export interface Principal {
  /** As the audit has it. */
  readonly name: string;
  readonly role: Role | undefined;
  readonly permissions: ReadonlySet<Permission>;
  /** How he was recognised: what comes with every request of a browser by itself needs more care than a header. */
  readonly by: 'loopback' | 'token' | 'session' | 'jwt' | 'authorize';
}

export interface Grant {
  readonly name: string;
  readonly role?: Role | undefined;
  /** Instead of a role. */
  readonly permissions?: readonly Permission[] | undefined;
}

export function principalOf({ name, role, permissions }: Grant, by: Principal['by'], isReadOnly: boolean): Principal {
  const granted = permissions ?? OF_ROLE[role ?? 'viewer'];
  const left = isReadOnly ? granted.filter((permission) => LOOKING.includes(permission)) : granted;
  return { name, role: permissions === undefined ? (role ?? 'viewer') : undefined, permissions: new Set(left), by };
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
