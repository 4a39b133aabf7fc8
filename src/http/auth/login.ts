import { InvalidInput } from '../../base/errors.ts';
import { readBody } from '../protocol/body.ts';
import { HttpRefusal } from '../protocol/failure.ts';
import { maybe, readFields, text } from '../protocol/field.ts';
import type { Audit } from './audit.ts';
import type { Authenticator, Credentials, LoggedIn } from './authenticator.ts';
import { networkOf, type Peer, refuseOtherSites } from './peer.ts';
import { RateLimiter } from './rate.ts';

/** Ten attempts at once, then one each six seconds, from one network. */
const OF_NETWORK = { burst: 10, perSecond: 1 / 6 } as const;
/** For one name, from any address: enough for a person who is unsure, and too few for a list of passwords. */
const OF_NAME = { burst: 20, perSecond: 1 / 3 } as const;

const FIELDS = {
  name: maybe(text({ max: 100 })),
  password: maybe(text({ max: 1000 })),
  token: maybe(text({ max: 8192 })),
};
/** The longest name and password, escaped. */
const MOST_BYTES = 16_384;
/** A stranger that sends them more slowly would hold a connection. */
const BODY_MS = 5000;

/** Logging in and out. Strangers reach this code, so each step costs less than the previous step has admitted. */
export class LoginDesk {
  readonly #auth: Authenticator;
  readonly #audit: Audit;
  readonly #ofNetwork = new RateLimiter(OF_NETWORK);
  readonly #ofName = new RateLimiter(OF_NAME);

  constructor(auth: Authenticator, audit: Audit) {
    this.#auth = auth;
    this.#audit = audit;
  }

  /** Which credentials the login page can offer. */
  ways(): Response {
    return Response.json(this.#auth.ways);
  }

  /** @throws HttpRefusal, InvalidInput */
  async logIn(request: Request, peer: Peer): Promise<Response> {
    refuseOtherSites(request, undefined);
    const shown = await this.#read(request, peer);
    try {
      const { who, cookie } = await this.#auth.logIn(shown, request);
      await this.#audit.loggedIn({ who, ...from(request, peer) });
      const headers = new Headers({ 'set-cookie': cookie });
      if ('password' in shown) headers.append('set-cookie', this.#auth.devices.remember(request, shown.name));
      return new Response(null, { status: 204, headers });
    } catch (error) {
      if (error instanceof HttpRefusal && error.code === 'unauthorized')
        await this.#audit.notLoggedIn(from(request, peer), error.status, error.code);
      throw error;
    }
  }

  /**
   * The address that a program has printed, with a token in it. The answer sets a cookie and redirects to the address without the
   * token, whether the token was valid or not, so that no history keeps it.
   * @throws HttpRefusal  rate_limited: too many wrong tokens from one network
   */
  async enter(request: Request, peer: Peer): Promise<Response> {
    const url = new URL(request.url);
    const entered = this.#auth.logInByUrl(url.searchParams.get('token') ?? '', request);
    if (entered !== undefined) await this.#audit.loggedIn({ who: entered.who, ...from(request, peer) });
    else {
      this.#ofNetwork.take(networkOf(peer));
      await this.#audit.notLoggedIn(from(request, peer), 401, 'unauthorized');
    }
    url.searchParams.delete('token');
    // One slash: two would name another host.
    const location = `/${url.pathname.replace(/^\/+/, '')}${url.search}`;
    return new Response(null, { status: 303, headers: { location, ...cookieOf(entered) } });
  }

  async logOut(request: Request): Promise<Response> {
    refuseOtherSites(request, undefined);
    const cookie = await this.#auth.logOut(request);
    return new Response(null, { status: 204, headers: { 'set-cookie': cookie, 'clear-site-data': '"cache"' } });
  }

  async #read(request: Request, peer: Peer): Promise<Credentials> {
    const { password: byPassword, token: byToken } = this.#auth.ways;
    if (!byPassword && !byToken) throw new HttpRefusal('not_found', 'this server has no login');
    const { given } = await readBody(request, MOST_BYTES, { withinMs: BODY_MS });
    const { name, password, token } = readFields('POST /login', given, FIELDS, false);
    if (token !== undefined && name === undefined && password === undefined) {
      this.#ofNetwork.take(networkOf(peer));
      return { token };
    }
    if (name === undefined || password === undefined || token !== undefined)
      throw new InvalidInput('give a name and a password, or a token', {
        field: token === undefined ? 'name' : 'token',
      });
    return { name, password, isKnownDevice: this.#take(name, request, peer) };
  }

  /** @returns whether the browser is known; a known browser has attempts of its own @throws HttpRefusal  rate_limited */
  #take(name: string, request: Request, peer: Peer): boolean {
    const device = this.#auth.devices.recognise(request, name);
    if (device !== undefined) {
      this.#ofNetwork.take(`device ${device}`);
      return true;
    }
    this.#ofNetwork.take(networkOf(peer));
    this.#ofName.take(name);
    return false;
  }
}

function from(request: Request, peer: Peer): { remote: string | undefined; userAgent: string | undefined } {
  return { remote: peer.remoteAddress, userAgent: request.headers.get('user-agent') ?? undefined };
}

function cookieOf(entered: LoggedIn | undefined): Record<string, string> {
  return entered === undefined ? {} : { 'set-cookie': entered.cookie };
}
