import { createHash, timingSafeEqual } from 'node:crypto';
import { HttpRefusal } from './failure.ts';
import type { HttpSettings } from './options.ts';
import { verifyPassword } from './password.ts';
import { isLoopback, type Peer } from './peer.ts';
import { isRole, type Principal, principalOf } from './permission.ts';
import { SessionCookies } from './session-cookie.ts';

/** Finds out who asks. What is not opened is closed: without any way in, only this machine itself gets one. */
export class Authenticator {
  readonly #settings: HttpSettings;
  readonly #cookies: SessionCookies;
  readonly #loopback: 'viewer' | 'operator' | 'admin' | 'none';
  #verifyJwt: ((token: string) => Promise<Record<string, unknown>>) | undefined;

  constructor(settings: HttpSettings) {
    const { auth, basePath } = settings;
    this.#settings = settings;
    this.#cookies = new SessionCookies(auth?.secret, basePath, auth?.session ?? 0);
    this.#loopback = auth?.loopback ?? (this.#isOpenedOtherwise ? 'none' : 'admin');
  }

  /** Whether the dashboard should ask for a name and a password. */
  get hasUsers(): boolean {
    return (this.#settings.auth?.users.length ?? 0) > 0;
  }

  /** @returns who it is, or a Response to give instead @throws HttpRefusal  unauthorized */
  async identify(request: Request, peer: Peer): Promise<Principal | Response> {
    const { auth, readOnly } = this.#settings;
    const bearer = /^Bearer +(\S+)$/i.exec(request.headers.get('authorization') ?? '')?.[1];
    const token = bearer === undefined ? undefined : this.#tokenOf(bearer);
    if (token !== undefined) return principalOf(token, 'token', readOnly);
    if (bearer !== undefined && auth?.jwt !== undefined) return this.#jwt(bearer);
    const user = auth?.users.find(({ name }) => name === this.#cookies.read(request.headers.get('cookie')));
    if (user !== undefined) return principalOf(user, 'session', readOnly);
    if (auth?.authorize !== undefined) {
      const answer = await auth.authorize(request);
      if (answer instanceof Response) return answer;
      if (answer !== undefined) return principalOf(answer, 'authorize', readOnly);
    }
    if (bearer === undefined && this.#loopback !== 'none' && isLoopback(request, peer)) {
      return principalOf({ name: 'this machine', role: this.#loopback }, 'loopback', readOnly);
    }
    throw new HttpRefusal('unauthorized', this.#advice(bearer !== undefined), {
      'www-authenticate': 'Bearer realm="pawl"',
    });
  }

  /** @returns the cookie @throws HttpRefusal  unauthorized, without saying which of the two is wrong */
  async logIn(name: string, password: string, isSecure: boolean): Promise<string> {
    const user = this.#settings.auth?.users.find((known) => known.name === name);
    // Somebody unknown takes as long as somebody known.
    const isRight = await verifyPassword(password, user?.password ?? NOBODY);
    if (user === undefined || !isRight) throw new HttpRefusal('unauthorized', 'the name or the password is wrong');
    return this.#cookies.issue(name, isSecure);
  }

  logOut(isSecure: boolean): string {
    return this.#cookies.clear(isSecure);
  }

  get #isOpenedOtherwise(): boolean {
    const { auth } = this.#settings;
    if (auth === undefined) return false;
    return auth.tokens.length > 0 || auth.users.length > 0 || auth.jwt !== undefined || auth.authorize !== undefined;
  }

  #tokenOf(bearer: string): NonNullable<HttpSettings['auth']>['tokens'][number] | undefined {
    const given = digest(bearer);
    // All of them, so that the time tells nothing.
    return this.#settings.auth?.tokens.filter(({ token }) => timingSafeEqual(given, digest(token)))[0];
  }

  async #jwt(bearer: string): Promise<Principal> {
    const jwt = this.#settings.auth?.jwt;
    this.#verifyJwt ??= await makeVerifier(jwt);
    let claims: Record<string, unknown>;
    try {
      claims = await this.#verifyJwt(bearer);
    } catch (error) {
      if (!isAboutToken(error)) {
        const message =
          'the keys of the identity provider cannot be had now, so no token can be checked; try again soon';
        throw new HttpRefusal('identity_unavailable', message, { 'retry-after': '5' });
      }
      throw new HttpRefusal(
        'unauthorized',
        'the token is not valid here: expired, of another issuer, or not signed by it',
        {
          'www-authenticate': 'Bearer realm="pawl", error="invalid_token"',
        },
      );
    }
    const role = claims[jwt?.roleClaim ?? 'role'];
    const name = typeof claims['sub'] === 'string' ? claims['sub'] : 'unnamed';
    if (!isRole(role))
      throw new HttpRefusal('forbidden', `the token of "${name}" names no role of viewer, operator, admin`);
    return principalOf({ name, role }, 'jwt', this.#settings.readOnly);
  }

  #advice(hasToken: boolean): string {
    if (hasToken) return 'this token is not known here';
    if (this.hasUsers) return 'log in first';
    if (this.#isOpenedOtherwise) return 'show a token: Authorization: Bearer …';
    return 'this is open to the machine it runs on alone; give createHttp({ auth }) to let others in';
  }
}

/** A hash of nobody's password. */
const NOBODY = `scrypt$17$8$1$${'A'.repeat(22)}$${'A'.repeat(43)}`;

function digest(value: string): Buffer {
  return createHash('sha256').update(value).digest();
}

/** What jose says of a token, and not of the keys: those that do not come, or are none, are the provider's fault. */
function isAboutToken(error: unknown): boolean {
  const code: unknown = error instanceof Error ? Reflect.get(error, 'code') : undefined;
  return (
    typeof code === 'string' && /^ERR_(JWT_|JWS_|JWE_|JWKS_NO_MATCHING|JWKS_MULTIPLE|JOSE_ALG|JOSE_NOT)/.test(code)
  );
}

/** Loaded when the first such token comes. */
async function makeVerifier(
  jwt: NonNullable<HttpSettings['auth']>['jwt'],
): Promise<(token: string) => Promise<Record<string, unknown>>> {
  const { createRemoteJWKSet, jwtVerify } = await import('jose');
  const { issuer = '', audience = '', jwks, secret = '', timeout } = jwt ?? {};
  if (jwks !== undefined) {
    const keys = createRemoteJWKSet(new URL(jwks), { timeoutDuration: timeout ?? 5000 });
    const algorithms = ['RS256', 'RS384', 'RS512', 'PS256', 'PS384', 'PS512', 'ES256', 'ES384', 'ES512', 'EdDSA'];
    return async (token) => (await jwtVerify(token, keys, { issuer, audience, algorithms })).payload;
  }
  const key = new TextEncoder().encode(secret);
  return async (token) => (await jwtVerify(token, key, { issuer, audience, algorithms: ['HS256'] })).payload;
}
