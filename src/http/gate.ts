import type { Audit } from './auth/audit.ts';
import type { Authenticator } from './auth/authenticator.ts';
import { networkOf, type Peer, refuseOtherSites } from './auth/peer.ts';
import { changes, leastRole, type Permission, type Principal } from './auth/permission.ts';
import { RateLimiter } from './auth/rate.ts';
import { Tarpit } from './auth/tarpit.ts';
import type { HttpSettings } from './options.ts';
import { HttpRefusal } from './protocol/failure.ts';
import { isResponse } from './protocol/reply.ts';

/** Decides which callers may enter, how often, from which site, and with which permission. */
export class Gate {
  readonly #auth: Authenticator;
  readonly #settings: HttpSettings;
  readonly #audit: Audit;
  readonly #limiter: RateLimiter;
  readonly #tarpit: Tarpit = new Tarpit();

  constructor(auth: Authenticator, settings: HttpSettings, audit: Audit) {
    this.#auth = auth;
    this.#settings = settings;
    this.#audit = audit;
    this.#limiter = new RateLimiter(settings.rate);
  }

  /**
   * A known caller has a bucket of its own, from every address: behind a proxy all callers have one address. A stranger
   * shares the bucket of its address, and takes nothing from the known callers there.
   */
  async identify(request: Request, peer: Peer): Promise<Principal | Response> {
    const stranger = `network ${networkOf(peer)}`;
    const who = await this.#auth.identify(request, peer).catch(async (error: unknown) => {
      await this.#takeFromStranger(stranger);
      throw error;
    });
    if (isResponse(who)) await this.#takeFromStranger(stranger);
    else this.#limiter.take(`${who.by} ${who.name}`);
    return who;
  }

  /** @throws HttpRefusal  rate_limited, after a second or two */
  async #takeFromStranger(stranger: string): Promise<void> {
    try {
      this.#limiter.take(stranger);
    } catch (refusal) {
      await this.#tarpit.hold();
      throw refusal;
    }
  }

  /** How many requests this caller has left, as headers. */
  limits(who: Principal): Record<string, string> {
    return this.#limiter.headers(`${who.by} ${who.name}`);
  }

  /** @throws HttpRefusal  the page of another site sent the request, or the caller lacks the permission */
  async admit(permission: Permission, who: Principal, request: Request, peer: Peer): Promise<void> {
    refuseOtherSites(request, who.by);
    await this.#require(permission, who, request, peer);
  }

  stop(): void {
    this.#tarpit.stop();
  }

  /** A refusal for lack of a permission gets a line in the audit if the request would have changed something. */
  async #require(permission: Permission, who: Principal, request: Request, peer: Peer): Promise<void> {
    if (who.permissions.has(permission)) return;
    const isReadOnly = this.#settings.readOnly && changes(permission);
    const refusal = isReadOnly
      ? new HttpRefusal('read_only', 'this server changes nothing: it is in read-only mode')
      : new HttpRefusal(
          'forbidden',
          `${who.name} lacks the permission ${permission}, which the role ${leastRole(permission)} has`,
        );
    if (changes(permission)) {
      const action = { who, remote: peer.remoteAddress, userAgent: request.headers.get('user-agent') ?? undefined };
      const target = new URL(request.url).pathname;
      await this.#audit.refused({ ...action, permission, target, body: {} }, refusal.status, refusal.code);
    }
    throw refusal;
  }
}
