import { createHmac, randomBytes, timingSafeEqual } from 'node:crypto';

const NAME = 'pawl_session';

/** Who has logged in with a password: signed, so that nothing has to be kept, and it cannot be made up. */
export class SessionCookies {
  readonly #secret: Buffer;
  readonly #path: string;
  readonly #lifeMs: number;

  /** @param secret  undefined: a random one, so that sessions end with this process and hold for no other */
  constructor(secret: string | undefined, path: string, lifeMs: number) {
    this.#secret = secret === undefined ? randomBytes(32) : Buffer.from(secret);
    this.#path = path === '' ? '/' : path;
    this.#lifeMs = lifeMs;
  }

  issue(user: string, isSecure: boolean): string {
    const body = `${Buffer.from(user).toString('base64url')}.${(Date.now() + this.#lifeMs).toString(36)}.${randomBytes(9).toString('base64url')}`;
    return this.#cookie(`${body}.${this.#sign(body)}`, Math.floor(this.#lifeMs / 1000), isSecure);
  }

  clear(isSecure: boolean): string {
    return this.#cookie('', 0, isSecure);
  }

  /** @returns the user of a cookie that is ours and not over */
  read(header: string | null): string | undefined {
    const value = header
      ?.split(';')
      .map((part) => part.trim().split('='))
      .find(([name]) => name === NAME)?.[1];
    const [user = '', until = '', nonce = '', signature = ''] = value?.split('.') ?? [];
    const [given, wanted] = [Buffer.from(signature), Buffer.from(this.#sign(`${user}.${until}.${nonce}`))];
    if (given.length !== wanted.length || !timingSafeEqual(given, wanted)) return undefined;
    return Number.parseInt(until, 36) > Date.now() ? Buffer.from(user, 'base64url').toString() : undefined;
  }

  #sign(body: string): string {
    return createHmac('sha256', this.#secret).update(body).digest('base64url');
  }

  #cookie(value: string, maxAge: number, isSecure: boolean): string {
    const secure = isSecure ? '; Secure' : '';
    return `${NAME}=${value}; Path=${this.#path}; Max-Age=${maxAge}; HttpOnly; SameSite=Strict${secure}`;
  }
}
