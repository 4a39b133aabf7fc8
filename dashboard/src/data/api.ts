import { signal } from '@preact/signals';
import { urlOf } from '../router.ts';
import type { Me } from './types.ts';

/** A refusal of the server, or no answer at all. */
export class ApiError extends Error {
  readonly status: number;
  readonly code: string;
  /** The field of the request that the error is about. */
  readonly field: string | undefined;

  constructor(status: number, code: string, message: string, field?: string) {
    super(message);
    this.status = status;
    this.code = code;
    this.field = field;
  }
}

/** Whether the database behind the API has this part. False until that is known. */
export function has(part: string): boolean {
  return me.value?.parts !== undefined && me.value.parts[part] !== false;
}

/** The user; undefined until it is known, null when no user has logged in. */
export const me = signal<Me | null | undefined>(undefined);

export function can(permission: string): boolean {
  return me.value?.permissions.includes(permission) === true;
}

export async function get<T>(path: string, abort?: AbortSignal): Promise<T> {
  const response = await ask(path, abort === undefined ? {} : { signal: abort });
  return (await response.json()) as T;
}

/** The text of the answer, unchanged, because JavaScript cannot represent its long numbers. */
export async function getText(path: string): Promise<string> {
  return (await ask(path, {})).text();
}

export async function send<T>(method: 'POST' | 'DELETE', path: string, body: object = {}): Promise<T> {
  const headers = { 'content-type': 'application/json' };
  const response = await ask(path, { method, headers, ...(method === 'POST' ? { body: JSON.stringify(body) } : {}) });
  return (response.status === 204 ? undefined : await response.json()) as T;
}

/** Sends a body as it was written. */
export async function sendText<T>(path: string, body: string): Promise<T> {
  const response = await ask(path, { method: 'POST', headers: { 'content-type': 'application/json' }, body });
  return (await response.json()) as T;
}

export async function loadMe(): Promise<void> {
  try {
    me.value = await get<Me>('me');
  } catch (error) {
    me.value = error instanceof ApiError && error.status === 401 ? null : undefined;
    if (me.value === undefined) throw error;
  }
}

async function ask(path: string, init: RequestInit): Promise<Response> {
  const url = addressOf(path);
  let response: Response;
  try {
    response = await fetch(url, { credentials: 'same-origin', ...init });
  } catch (error) {
    if (init.signal?.aborted) throw error;
    throw new ApiError(0, 'unreachable', 'the server does not answer');
  }
  if (response.ok) return response;
  const body: unknown = await response.json().catch(() => undefined);
  const {
    code = 'unknown',
    message = response.statusText,
    field,
  } = (body as { error?: { code?: string; message?: string; field?: string } })?.error ?? {};
  if (response.status === 401 && path !== 'login') me.value = null;
  throw new ApiError(response.status, code, message, field);
}

/** Refuses a name of dots alone. However it is encoded, an address with it leads a folder up, to another resource. */
function addressOf(path: string): string {
  const raw = path.split('?', 1)[0] ?? '';
  const url = urlOf(`api/v1/${path}`);
  if (new URL(url).pathname.endsWith(`/api/v1/${raw}`)) return url;
  throw new ApiError(400, 'invalid_input', 'a name of dots alone cannot stand in an address: use the command line');
}
