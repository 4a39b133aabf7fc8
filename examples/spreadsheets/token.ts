import { jwtVerify, SignJWT } from 'jose';

const AUDIENCE = 'spreadsheets';
const ALGORITHM = 'HS256';

/** A token for somebody, good for 12 hours. */
export function signToken(secret: string, subject: string): Promise<string> {
  return new SignJWT()
    .setProtectedHeader({ alg: ALGORITHM })
    .setSubject(subject)
    .setAudience(AUDIENCE)
    .setIssuedAt()
    .setExpirationTime('12h')
    .sign(new TextEncoder().encode(secret));
}

/** @returns whose token it is; undefined for one that is wrong, expired, meant for another service, or signed otherwise */
export async function verifyToken(secret: string, token: string): Promise<string | undefined> {
  try {
    const { payload } = await jwtVerify(token, new TextEncoder().encode(secret), {
      audience: AUDIENCE,
      algorithms: [ALGORITHM],
      requiredClaims: ['sub', 'exp'],
    });
    return payload.sub;
  } catch {
    return undefined;
  }
}
