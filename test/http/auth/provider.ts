import { createServer, type ServerResponse } from 'node:http';
import type { AddressInfo } from 'node:net';
import { exportJWK, generateKeyPair, SignJWT } from 'jose';
import { onTestFinished } from 'vitest';

type Behaviour = 'well' | 'fails' | 'hangs' | 'nonsense';

export interface Signer {
  /** A token for here, for five minutes. */
  sign(subject: string): Promise<string>;
}

/** An identity provider on a port of its own, which can be told to behave badly. */
export interface Provider {
  readonly issuer: string;
  /** Publishes a key next to the earlier ones. */
  newKey(kid: string): Promise<Signer>;
  withdraw(kid: string): void;
  /** A key that is not published. */
  strangeKey(kid: string): Promise<Signer>;
  behave(how: Behaviour): void;
  /** How often the keys were asked for. */
  asked(): number;
  stop(): Promise<void>;
}

export async function startProvider(): Promise<Provider> {
  const keys = new Map<string, object>();
  let asked = 0;
  let how: Behaviour = 'well';
  const answers: Readonly<Record<Behaviour, (response: ServerResponse) => void>> = {
    well: (response) =>
      response.setHeader('content-type', 'application/json').end(JSON.stringify({ keys: [...keys.values()] })),
    fails: (response) => response.writeHead(500).end('out of order'),
    hangs: () => {},
    nonsense: (response) => response.setHeader('content-type', 'application/json').end('<html>'),
  };
  const server = createServer((_request, response) => {
    asked += 1;
    answers[how](response);
  });
  await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve));
  const issuer = `http://127.0.0.1:${(server.address() as AddressInfo).port}`;
  const stop = async (): Promise<void> => {
    server.closeAllConnections();
    await new Promise((resolve) => server.close(resolve));
  };
  onTestFinished(stop);
  const make = async (kid: string, isPublished: boolean): Promise<Signer> => {
    const { publicKey, privateKey } = await generateKeyPair('ES256');
    if (isPublished) keys.set(kid, { ...(await exportJWK(publicKey)), kid, alg: 'ES256', use: 'sig' });
    return {
      sign: (subject) =>
        new SignJWT({ role: 'viewer' })
          .setProtectedHeader({ alg: 'ES256', kid })
          .setIssuer(issuer)
          .setAudience('pawl')
          .setSubject(subject)
          .setExpirationTime('5m')
          .sign(privateKey),
    };
  };
  return {
    issuer,
    newKey: (kid) => make(kid, true),
    withdraw: (kid) => void keys.delete(kid),
    strangeKey: (kid) => make(kid, false),
    behave: (as) => {
      how = as;
    },
    asked: () => asked,
    stop,
  };
}
