import { randomBytes } from 'node:crypto';
import type { EndedSessions } from './ended-sessions.ts';
import { peek, readCookie, type Seal, writeCookie } from './seal.ts';

/** Whom a session is of: a person with a password, somebody who has shown a token, or one of the identity provider's. */
export interface Login {
  readonly by: 'user' | 'token' | 'jwt';
  readonly name: string;
  /** Of a token of the provider: what it said. */
  readonly role?: string | undefined;
}

/** What a session stands on, such as the hash of a password. When that is changed or taken away, the session is over. */
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

/** Who has logged in, as a sealed cookie of the browser; of one that was ended before its time, that is kept. */
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

  /** @param secret  of the credential it stands on @param until  when that ends, if it does */
  issue(login: Login, secret: string, request: Request, until: number = Infinity): string {
    const ends = Math.min(Date.now() + this.#lifeMs, until);
    const body: SessionBody = { ...login, until: ends, id: randomBytes(12).toString('base64url') };
    const seconds = Math.max(0, Math.ceil((ends - Date.now()) / 1000));
    return this.#cookie(request, this.#seal.close(body, [NAME, secret]), seconds);
  }

  /**
   * @param credentialsOf  what such a session may stand on now
   * @returns the grant of the caller that shows this cookie; undefined: it is not ours, or over
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

  /** Ends the session of this request, wherever its cookie was copied to. @returns what makes the browser forget it */
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
