import { isIP } from 'node:net';
import { HttpRefusal } from '../protocol/failure.ts';
import type { Principal } from './permission.ts';

/** Facts about a request that only the server in front knows. */
export interface Peer {
  /** The address of the connection itself, not of a header. */
  readonly remoteAddress?: string | undefined;
}

/** Headers that proxies add if they are configured to; many are not, so their absence proves nothing. */
const PROXIED =
  /^(forwarded|via|x-real-ip|x-forwarded(-.*)?|x-original-.*|(.*-)?client-ip|.*connecting-ip|cf-.*|x-envoy-.*)$/;

/**
 * Whether the request comes over the loopback interface, by a name of this machine (a page elsewhere may have a name that leads
 * here), and shows no trace of a proxy. That does not prove the caller's identity: see `dangerouslyTrustLoopback`.
 */
export function isLoopback(request: Request, { remoteAddress }: Peer): boolean {
  if (remoteAddress === undefined || !/^(127\.\d+\.\d+\.\d+|::1|::ffff:127\.\d+\.\d+\.\d+)$/.test(remoteAddress))
    return false;
  if ([...request.headers.keys()].some((name) => PROXIED.test(name))) return false;
  return isThisMachine(new URL(request.url));
}

export function isThisMachine({ hostname }: URL): boolean {
  return /^(localhost|127\.\d+\.\d+\.\d+|\[::1\])$/.test(hostname);
}

/**
 * The callers that share a limit: those of one address. A network of IPv6 counts as one address, because a client in it has 2^64.
 * If the server in front does not name the address, all callers share one limit.
 */
export function networkOf({ remoteAddress }: Peer): string {
  if (remoteAddress === undefined) return 'unknown';
  if (isIP(remoteAddress) !== 6) return remoteAddress;
  const mapped = /^::ffff:(\d+\.\d+\.\d+\.\d+)$/i.exec(remoteAddress)?.[1];
  return mapped ?? `${firstWords(remoteAddress).join(':')}::/64`;
}

/** The first four of the eight words of an IPv6 address. */
function firstWords(address: string): string[] {
  const [head = '', tail] = address.replace(/%.*$/, '').split('::');
  const words = (part: string | undefined): string[] => (part === undefined || part === '' ? [] : part.split(':'));
  const [before, after] = [words(head), words(tail)];
  const gap = tail === undefined ? 0 : Math.max(0, 8 - before.length - after.length);
  const all = [...before, ...Array.from({ length: gap }, () => '0'), ...after];
  return all.slice(0, 4).map((word) => Number.parseInt(word, 16).toString(16));
}

const SAFE = ['GET', 'HEAD', 'OPTIONS'];

/**
 * Refuses requests that another site makes a browser send. A browser says which site a request comes from. Any other client sends
 * its credentials itself, and no other site can make it do so.
 * @throws HttpRefusal  cross_site
 */
export function refuseOtherSites(request: Request, by: Principal['by'] | undefined): void {
  if (SAFE.includes(request.method)) return;
  const site = request.headers.get('sec-fetch-site');
  const origin = request.headers.get('origin');
  const isOwn =
    site === null
      ? origin === null
        ? by !== 'session' && by !== 'authorize'
        : isSameHost(origin, request)
      : site === 'same-origin' || (site === 'none' && origin === null);
  if (!isOwn)
    throw new HttpRefusal(
      'cross_site',
      'another site sent this request, or the browser does not say which site sent it',
    );
}

function isSameHost(origin: string, request: Request): boolean {
  if (!URL.canParse(origin)) return false;
  const { host, protocol } = new URL(origin);
  return host === new URL(request.url).host && (protocol === 'https:' || !isSecure(request));
}

/** Whether the browser uses TLS. The proxy's header decides only about flags of the browser's own cookie. */
export function isSecure(request: Request): boolean {
  return request.url.startsWith('https:') || request.headers.get('x-forwarded-proto') === 'https';
}
