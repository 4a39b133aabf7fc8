import type { JwtSettings } from '../options.ts';
import { HttpRefusal } from '../protocol/failure.ts';

/** The claims that are used here, of a token that the provider has signed and that has not ended. */
export interface Claims {
  readonly name: string;
  /** The value of the claim, whatever it is. */
  readonly role: unknown;
  /** Unix time in ms after which the token is no longer accepted. */
  readonly until: number;
}

type Verify = (token: string) => Promise<Record<string, unknown>>;

const ALGORITHMS = ['RS256', 'RS384', 'RS512', 'PS256', 'PS384', 'PS512', 'ES256', 'ES384', 'ES512', 'EdDSA'];

/** Checks tokens of an identity provider. Its package is loaded, and its keys are fetched, when the first token comes. */
export class JwtVerifier {
  readonly #settings: JwtSettings;
  #verify: Promise<Verify> | undefined;

  constructor(settings: JwtSettings) {
    this.#settings = settings;
  }

  /** @throws HttpRefusal  unauthorized; identity_unavailable: its keys cannot be fetched now, so the token cannot be checked */
  async check(token: string): Promise<Claims> {
    this.#verify ??= makeVerify(this.#settings);
    const verify = await this.#verify;
    const claims = await verify(token).catch((error: unknown) => {
      throw refusalOf(error);
    });
    const { roleClaim, clockTolerance, maxAge = Infinity } = this.#settings;
    const { sub, exp, iat } = claims;
    // jose has checked that the claims are present, but not that the name is a text.
    if (typeof sub !== 'string') throw invalid();
    const ends = Math.min(Number(exp) * 1000, Number(iat ?? Infinity) * 1000 + maxAge);
    return { name: sub, role: claims[roleClaim], until: ends + clockTolerance };
  }
}

/** The key is unknown, but it may be newer than the last request to the provider. The next request follows only after a pause. */
class KeysTooYoung extends Error {}

async function makeVerify(settings: JwtSettings): Promise<Verify> {
  const { createRemoteJWKSet, errors, jwtVerify } = await import('jose');
  const { issuer, audience, jwks, secret = '', timeout, clockTolerance, maxAge } = settings;
  const options = {
    issuer,
    audience,
    requiredClaims: ['exp', 'sub'],
    clockTolerance: clockTolerance / 1000,
    ...(maxAge === undefined ? {} : { maxTokenAge: maxAge / 1000 }),
  };
  if (jwks === undefined) {
    const key = new TextEncoder().encode(secret);
    return async (token) => (await jwtVerify(token, key, { ...options, algorithms: ['HS256'] })).payload;
  }
  const keys = createRemoteJWKSet(new URL(jwks), { timeoutDuration: timeout });
  return async (token) => {
    const wereAskedJustNow = keys.coolingDown;
    try {
      return (await jwtVerify(token, keys, { ...options, algorithms: ALGORITHMS })).payload;
    } catch (error) {
      if (wereAskedJustNow && error instanceof errors.JWKSNoMatchingKey) throw new KeysTooYoung();
      throw error;
    }
  };
}

function refusalOf(error: unknown): HttpRefusal {
  if (error instanceof KeysTooYoung)
    return unavailable('its key is not known, and the provider was asked just now', 30);
  if (isAboutToken(error)) return invalid();
  return unavailable('the keys of the identity provider cannot be fetched now', 5);
}

function unavailable(why: string, waitS: number): HttpRefusal {
  const message = `${why}, so this token cannot be checked; try again in ${waitS} s`;
  return new HttpRefusal('identity_unavailable', message, { 'retry-after': String(waitS) });
}

function invalid(): HttpRefusal {
  const message = 'the token is not valid here: expired, of another issuer, not signed by it, or without exp or sub';
  return new HttpRefusal('unauthorized', message, {
    'www-authenticate': 'Bearer realm="pawl", error="invalid_token"',
  });
}

/** Whether jose's error is about the token, and not about the keys. Missing or malformed keys are the provider's fault. */
function isAboutToken(error: unknown): boolean {
  const code: unknown = error instanceof Error ? Reflect.get(error, 'code') : undefined;
  return (
    typeof code === 'string' && /^ERR_(JWT_|JWS_|JWE_|JWKS_NO_MATCHING|JWKS_MULTIPLE|JOSE_ALG|JOSE_NOT)/.test(code)
  );
}
