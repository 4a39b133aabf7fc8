import { createHmac, randomBytes, timingSafeEqual } from 'node:crypto';
import { isSecure } from './peer.ts';

/** Signs what browsers keep for us, so that nothing has to be kept here, and a browser cannot forge it. */
export class Seal {
  readonly #secret: Buffer;

  /** @param secret  undefined: a random one, so that what it signs ends with this process and holds for no other */
  constructor(secret: string | undefined) {
    this.#secret = secret === undefined ? randomBytes(32) : Buffer.from(secret);
  }

  /** @param of  what it is for, and what it stands on: with another one it is not ours */
  close(value: object, of: readonly string[]): string {
    const text = Buffer.from(JSON.stringify(value)).toString('base64url');
    return `${text}.${this.#sign(text, of)}`;
  }

  isOurs(sealed: string, of: readonly string[]): boolean {
    const [text = '', signature = ''] = sealed.split('.');
    const [given, wanted] = [Buffer.from(signature), Buffer.from(this.#sign(text, of))];
    return given.length === wanted.length && timingSafeEqual(given, wanted);
  }

  #sign(text: string, of: readonly string[]): string {
    return createHmac('sha256', this.#secret)
      .update(JSON.stringify([text, ...of]))
      .digest('base64url');
  }
}

/** Its content, without a check of the signature: it proves nothing. */
export function peek(sealed: string): Readonly<Record<string, unknown>> {
  try {
    return Object(JSON.parse(Buffer.from(sealed.split('.')[0] ?? '', 'base64url').toString()));
  } catch {
    return {};
  }
}

/** A cookie of ours in a request. */
export function readCookie(request: Request, name: string): string {
  const wanted = nameOf(request, name);
  const all = request.headers.get('cookie')?.split(';') ?? [];
  return all.map((part) => part.trim().split('=')).find(([given]) => given === wanted)?.[1] ?? '';
}

export interface Cookie {
  readonly name: string;
  readonly value: string;
  readonly path: string;
  readonly seconds: number;
}

export function writeCookie(request: Request, { name, value, path, seconds }: Cookie): string {
  const secure = isSecure(request) ? '; Secure' : '';
  return `${nameOf(request, name)}=${value}; Path=${path || '/'}; Max-Age=${seconds}; HttpOnly; SameSite=Strict${secure}`;
}

/** Browsers keep cookies by host and not by port: two dashboards of one machine must not log each other's people out. */
function nameOf(request: Request, name: string): string {
  const { port } = new URL(request.url);
  return port === '' ? name : `${name}_${port}`;
}
