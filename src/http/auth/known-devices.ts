import { randomBytes } from 'node:crypto';
import { peek, readCookie, type Seal, writeCookie } from './seal.ts';

const NAME = 'pawl_device';
const DAYS = 180;

/**
 * Browsers in which a user has logged in before. They have limits of their own, so that guesses of a name from elsewhere do not
 * lock out its owner. Such a cookie alone admits no caller.
 */
export class KnownDevices {
  readonly #seal: Seal;
  readonly #path: string;

  constructor(seal: Seal, path: string) {
    this.#seal = seal;
    this.#path = path;
  }

  /** @returns its cookie */
  remember(request: Request, user: string): string {
    const value = this.#seal.close({ user, id: randomBytes(12).toString('base64url') }, [NAME]);
    return writeCookie(request, { name: NAME, value, path: this.#path, seconds: DAYS * 86_400 });
  }

  /** @returns the name of its limit; undefined: this user never logged in there */
  recognise(request: Request, user: string): string | undefined {
    const sealed = readCookie(request, NAME);
    const body = peek(sealed);
    return body['user'] === user && this.#seal.isOurs(sealed, [NAME]) ? String(body['id']) : undefined;
  }
}
