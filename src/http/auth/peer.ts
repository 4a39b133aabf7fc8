import { isIP } from 'node:net';
import { HttpRefusal } from '../protocol/failure.ts';
import type { Principal } from './permission.ts';

/** What only the server in front knows about a request. */
export interface Peer {
  /** Of the connection itself, not what a header says. */
  readonly remoteAddress?: string | undefined;
}

/** What proxies add when they are told to; many are not, so that nothing follows from its absence. */
const PROXIED =
  /^(forwarded|via|x-real-ip|x-forwarded(-.*)?|x-original-.*|(.*-)?client-ip|.*connecting-ip|cf-.*|x-envoy-.*)$/;

/**
 * Whether the request comes over the loopback interface, by a name of this machine (a page elsewhere may make a name of its own
 * lead here), and shows no trace of a proxy. That does not prove which caller asks: see `dangerouslyTrustLoopback`.
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
 * Who shares a limit: the address, of which a network of IPv6 is one, since a client with one address of it has 2^64. Undefined:
 * the server in front does not say, so that all are one.
 */
export function networkOf({ remoteAddress }: Peer): string {
  if (remoteAddress === undefined) return 'unknown';
  if (isIP(remoteAddress) !== 6) return remoteAddress;
  const mapped = /^::ffff:(\d+\.\d+\.\d+\.\d+)$/i.exec(remoteAddress)?.[1];
  return mapped ?? `${firstWords(remoteAddress).join(':')}::/64`;
}

/** The first four of the eight words of an address of IPv6. */
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
 * Refuses what another site makes a browser send. Browsers say where a request comes from; what is not a browser shows its
 * credentials itself, which no other site can make it do.
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
    throw new HttpRefusal('cross_site', 'this request comes from another site, or a browser that does not say so');
}

function isSameHost(origin: string, request: Request): boolean {
  if (!URL.canParse(origin)) return false;
  const { host, protocol } = new URL(origin);
  return host === new URL(request.url).host && (protocol === 'https:' || !isSecure(request));
}

/** Whether the browser sees this over TLS. The proxy's word for it decides only flags of the browser's own cookie. */
export function isSecure(request: Request): boolean {
  return request.url.startsWith('https:') || request.headers.get('x-forwarded-proto') === 'https';
}
