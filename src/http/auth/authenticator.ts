import { createHash, timingSafeEqual } from 'node:crypto';
import type { Logger } from '../../base/logger.ts';
import type { AuthSettings, HttpSettings } from '../options.ts';
import { HttpRefusal } from '../protocol/failure.ts';
import { isResponse } from '../protocol/reply.ts';
import type { SessionStore } from '../store/sessions.ts';
import { EndedSessions } from './ended-sessions.ts';
import { JwtVerifier } from './jwt.ts';
import { KnownDevices } from './known-devices.ts';
import { verifyPassword } from './password.ts';
import { isLoopback, type Peer } from './peer.ts';
import { type Identity, type IdentitySource, isRole, type Principal, principalOf } from './permission.ts';
import { Seal } from './seal.ts';
import { type Credential, type Login, Sessions } from './sessions.ts';

/** The credentials of a login. */
export type Credentials = NamedPassword | { readonly token: string };

interface NamedPassword {
  readonly name: string;
  readonly password: string;
  /** Whether this name has logged in from this browser before. */
  readonly isKnownDevice: boolean;
}

/** A person who has logged in, and the cookie that proves it. */
export interface LoggedIn {
  readonly who: Principal;
  readonly cookie: string;
}

/** Finds out the identity of a caller. Without an option that admits callers, no caller gets in from any address. */
export class Authenticator {
  readonly devices: KnownDevices;
  readonly #auth: AuthSettings | undefined;
  readonly #isReadOnly: boolean;
  readonly #sessions: Sessions;
  readonly #jwt: JwtVerifier | undefined;
  readonly #logger: Logger;

  constructor({ auth, basePath, readOnly }: HttpSettings, store: SessionStore, logger: Logger) {
    this.#auth = auth;
    this.#isReadOnly = readOnly;
    this.#logger = logger;
    const seal = new Seal(auth?.secret);
    const ended = new EndedSessions(auth?.secret === undefined ? undefined : store);
    this.#sessions = new Sessions(seal, basePath, auth?.session ?? 0, ended);
    this.devices = new KnownDevices(seal, basePath);
    this.#jwt = auth?.jwt === undefined ? undefined : new JwtVerifier(auth.jwt);
  }

  /** The kinds of credentials for the login page. */
  get ways(): { readonly password: boolean; readonly token: boolean } {
    const { users = [], tokens = [] } = this.#auth ?? {};
    return { password: users.length > 0, token: tokens.length > 0 || this.#jwt !== undefined };
  }

  /** Whether any caller can get in. */
  get isOpen(): boolean {
    const { password, token } = this.ways;
    const { authorize, dangerouslyTrustLoopback: loopback } = this.#auth ?? {};
    return password || token || authorize !== undefined || loopback !== undefined;
  }

  /** @returns the caller, or a Response to send instead @throws HttpRefusal  unauthorized */
  async identify(request: Request, peer: Peer): Promise<Principal | Response> {
    const { authorize, dangerouslyTrustLoopback: loopback } = this.#auth ?? {};
    const bearer = /^Bearer +(\S+)$/i.exec(request.headers.get('authorization') ?? '')?.[1];
    const token = bearer === undefined ? undefined : this.#tokenOf(bearer);
    if (token !== undefined) return this.#admit(token, 'token');
    if (bearer !== undefined && this.#jwt !== undefined) return (await this.#fromJwt(bearer, this.#jwt)).who;
    const session = await this.#sessions.read(request, (login) => this.#credentialsOf(login));
    if (session !== undefined) return this.#admit(session.grant, 'session', session.until);
    if (authorize !== undefined) {
      const answer: unknown = await authorize(request);
      if (isResponse(answer)) return answer;
      if (answer !== undefined) return this.#admit(answer, 'authorize');
    }
    if (bearer === undefined && loopback !== undefined && isLoopback(request, peer))
      return this.#admit({ name: 'this machine', role: loopback }, 'loopback');
    throw unauthorized(this.#advice(bearer !== undefined));
  }

  /** @throws HttpRefusal  unauthorized; it does not say whether the name or the password is wrong */
  async logIn(shown: Credentials, request: Request): Promise<LoggedIn> {
    if ('token' in shown) return this.#logInByToken(shown.token, request);
    const user = this.#auth?.users.find(({ name }) => name === shown.name);
    // An unknown name takes as long as a known one.
    const isRight = await verifyPassword(shown.password, user?.password ?? NOBODY, shown.isKnownDevice);
    if (user === undefined || !isRight) throw unauthorized('the name or the password is wrong');
    const who = this.#admit(user, 'session');
    return { who, cookie: this.#sessions.issue({ by: 'user', name: user.name }, user.password, request) };
  }

  /** The token in an address that a program has printed. @returns undefined if it is no token that an address may contain */
  logInByUrl(token: string, request: Request): LoggedIn | undefined {
    const known = this.#tokenOf(token);
    return known?.inUrl === true ? this.#begin(known, request) : undefined;
  }

  /** @returns a header that makes the browser forget its cookie, which is invalid from now on, wherever it is */
  logOut(request: Request): Promise<string> {
    return this.#sessions.end(request, (login) => this.#credentialsOf(login));
  }

  async #logInByToken(token: string, request: Request): Promise<LoggedIn> {
    const known = this.#tokenOf(token);
    if (known !== undefined) return this.#begin(known, request);
    if (this.#jwt === undefined) throw unauthorized('this server does not know this token');
    const { who, role } = await this.#fromJwt(token, this.#jwt);
    const login = { by: 'jwt', name: who.name, role } as const;
    return { who, cookie: this.#sessions.issue(login, this.#provider, request, who.until) };
  }

  #begin(token: Identity & { readonly token: string }, request: Request): LoggedIn {
    const cookie = this.#sessions.issue({ by: 'token', name: token.name }, token.token, request);
    return { who: this.#admit(token, 'session'), cookie };
  }

  /** @throws HttpRefusal  unauthorized: the credentials prove no identity */
  #admit(grant: unknown, by: IdentitySource, until?: number): Principal {
    const who = principalOf(grant, { by, isReadOnly: this.#isReadOnly, until });
    if (who !== undefined) return who;
    if (by !== 'authorize') {
      throw unauthorized(
        'the name of this caller cannot be stored: it must have 1 to 100 characters, and no control characters',
      );
    }
    const wanted = 'an object with a name of 1 to 100 characters, and either a role or permissions';
    this.#logger.warn(
      {},
      `http: auth.authorize returned no identity, so the caller is refused; it must return ${wanted}`,
    );
    throw unauthorized(
      'auth.authorize of this server gave no identity; the log of the server says what it must return',
    );
  }

  /** The credentials that the session may belong to: several tokens may have the same name. */
  #credentialsOf({ by, name, role }: Login): readonly Credential[] {
    const { users = [], tokens = [] } = this.#auth ?? {};
    const isHis = (one: { readonly name: string }): boolean => one.name === name;
    if (by === 'user') return users.filter(isHis).map((grant) => ({ secret: grant.password, grant }));
    if (by === 'token') return tokens.filter(isHis).map((grant) => ({ secret: grant.token, grant }));
    return this.#jwt === undefined ? [] : [{ secret: this.#provider, grant: { name, role } }];
  }

  get #provider(): string {
    const { issuer = '', audience = '' } = this.#auth?.jwt ?? {};
    return JSON.stringify([issuer, audience]);
  }

  #tokenOf(bearer: string): AuthSettings['tokens'][number] | undefined {
    const given = digest(bearer);
    // Compares all of them, so that the time reveals nothing.
    return this.#auth?.tokens.filter(({ token }) => timingSafeEqual(given, digest(token)))[0];
  }

  async #fromJwt(bearer: string, verifier: JwtVerifier): Promise<{ readonly who: Principal; readonly role: string }> {
    const { name, role, until } = await verifier.check(bearer);
    if (!isRole(role))
      throw new HttpRefusal('forbidden', `the token of this person names no role of viewer, operator, admin`);
    return { who: this.#admit({ name, role }, 'jwt', until), role };
  }

  /** What the caller can do, by the configured ways to log in. */
  #advice(hasToken: boolean): string {
    const { password, token } = this.ways;
    const { authorize, dangerouslyTrustLoopback: loopback } = this.#auth ?? {};
    if (!this.isOpen) return 'no caller can log in: give createHttp({ auth }) tokens, users, jwt or authorize';
    const ways = [
      ...(password ? ['log in'] : []),
      ...(token ? ['send a token (Authorization: Bearer …)'] : []),
      ...(authorize === undefined
        ? []
        : [`send what auth.authorize of this server reads, such as its app's session cookie`]),
      ...(loopback === undefined ? [] : ["send the request from the server's machine, without a token or a proxy"]),
    ];
    return `${hasToken ? 'this server does not know this token' : 'the caller is unknown'}; ${ways.join(', or ')}`;
  }
}

/** A hash that belongs to no password. */
const NOBODY = `scrypt$17$8$1$${'A'.repeat(22)}$${'A'.repeat(43)}`;

function unauthorized(message: string): HttpRefusal {
  return new HttpRefusal('unauthorized', message, { 'www-authenticate': 'Bearer realm="pawl"' });
}

function digest(value: string): Buffer {
  return createHash('sha256').update(value).digest();
}
