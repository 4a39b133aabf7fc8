import { randomBytes } from 'node:crypto';
import type { EndedSessions } from './ended-sessions.ts';
import { peek, readCookie, type Seal, writeCookie } from './seal.ts';

/** The owner of a session: a person with a password, a caller with a token, or a user of the identity provider. */
export interface Login {
  readonly by: 'user' | 'token' | 'jwt';
  readonly name: string;
  /** For a token of the provider: its role. */
  readonly role?: string | undefined;
}

/** The credential behind a session, such as the hash of a password. If it is changed or removed, the session is over. */
export interface Credential {
  readonly secret: string;
  readonly grant: unknown;
}

type CredentialsOf = (login: Login) => readonly Credential[];

interface SessionBody extends Login {
  readonly until: number;
  readonly id: string;
}

const NAME = 'pawl_session';

/**
 * Sessions of people who have logged in, as sealed cookies of their browsers. Only sessions that were ended before their time are
 * stored.
 */
export class Sessions {
  readonly #seal: Seal;
  readonly #path: string;
  readonly #lifeMs: number;
  readonly #ended: EndedSessions;

  constructor(seal: Seal, path: string, lifeMs: number, ended: EndedSessions) {
    this.#seal = seal;
    this.#path = path;
    this.#lifeMs = lifeMs;
    this.#ended = ended;
  }

  /** @param secret  of the credential behind the session @param until  the end of that credential, if it has one */
  issue(login: Login, secret: string, request: Request, until: number = Infinity): string {
    const ends = Math.min(Date.now() + this.#lifeMs, until);
    const body: SessionBody = { ...login, until: ends, id: randomBytes(12).toString('base64url') };
    const seconds = Math.max(0, Math.ceil((ends - Date.now()) / 1000));
    return this.#cookie(request, this.#seal.close(body, [NAME, secret]), seconds);
  }

  /**
   * @param credentialsOf  returns the credentials that may be behind such a session now
   * @returns the grant of the caller with this cookie; undefined: the cookie is not ours, or has ended
   */
  async read(
    request: Request,
    credentialsOf: CredentialsOf,
  ): Promise<(SessionBody & { readonly grant: unknown }) | undefined> {
    const sealed = readCookie(request, NAME);
    const body = peek(sealed);
    if (!isBody(body) || body.until <= Date.now()) return undefined;
    const found = credentialsOf(body).find(({ secret }) => this.#seal.isOurs(sealed, [NAME, secret]));
    if (found === undefined || (await this.#ended.has(body.id))) return undefined;
    return { ...body, grant: found.grant };
  }

  /** Ends the session of this request, wherever its cookie was copied to. @returns a header that makes the browser forget it */
  async end(request: Request, credentialsOf: CredentialsOf): Promise<string> {
    const session = await this.read(request, credentialsOf);
    if (session !== undefined) await this.#ended.add(session.id, session.until);
    return this.#cookie(request, '', 0);
  }

  #cookie(request: Request, value: string, seconds: number): string {
    return writeCookie(request, { name: NAME, value, path: this.#path, seconds });
  }
}

function isBody(body: object): body is SessionBody {
  const { by, name, until, id } = body as Partial<Record<string, unknown>>;
  const isLogin = (by === 'user' || by === 'token' || by === 'jwt') && typeof name === 'string';
  return isLogin && typeof until === 'number' && typeof id === 'string';
}
