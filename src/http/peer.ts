import { HttpRefusal } from './failure.ts';
import type { Principal } from './permission.ts';

/** What only the server in front knows about a request. */
export interface Peer {
  /** Of the connection itself, not what a header says. */
  readonly remoteAddress?: string | undefined;
}

const PROXIED = ['forwarded', 'x-forwarded-for', 'x-forwarded-host', 'x-real-ip', 'via'];

/**
 * Whether the request comes from this machine, for this machine: the connection is from the loopback interface, the name asked
 * for is one of it (a page elsewhere may make a name of its own lead here), and no proxy speaks for somebody else.
 */
export function isLoopback(request: Request, { remoteAddress }: Peer): boolean {
  if (remoteAddress === undefined || !/^(127\.\d+\.\d+\.\d+|::1|::ffff:127\.\d+\.\d+\.\d+)$/.test(remoteAddress))
    return false;
  if (PROXIED.some((name) => request.headers.has(name))) return false;
  const { hostname } = new URL(request.url);
  return /^(localhost|.+\.localhost|127\.\d+\.\d+\.\d+|\[::1\])$/.test(hostname);
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
  return URL.canParse(origin) && new URL(origin).host === new URL(request.url).host;
}
