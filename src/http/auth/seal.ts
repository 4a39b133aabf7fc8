import { createHmac, randomBytes, timingSafeEqual } from 'node:crypto';
import { isSecure } from './peer.ts';

/** Signs data that browsers keep for us. So the server need not keep it, and a browser cannot forge it. */
export class Seal {
  readonly #secret: Buffer;

  /** @param secret  undefined: a random one, so that its signatures end with this process and are valid for no other */
  constructor(secret: string | undefined) {
    this.#secret = secret === undefined ? randomBytes(32) : Buffer.from(secret);
  }

  /** @param of  the purpose of the data, and the secrets behind it: for another purpose or other secrets, the seal is invalid */
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

/** The content, without a check of the signature: it proves nothing. */
export function peek(sealed: string): Readonly<Record<string, unknown>> {
  try {
    return Object(JSON.parse(Buffer.from(sealed.split('.')[0] ?? '', 'base64url').toString()));
  } catch {
    return {};
  }
}

/** One of our cookies in a request. */
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

/** Browsers keep cookies by host and not by port: two dashboards on one machine must not log out each other's users. */
function nameOf(request: Request, name: string): string {
  const { port } = new URL(request.url);
  return port === '' ? name : `${name}_${port}`;
}
