// A small model checker: explores every order of the steps of a few clients, with crashes and lost answers anywhere. Each
// step is one request to the database. The steps of our protocol decide with the functions of the library.
import {
  EMPTY,
  granted,
  type Head,
  type HeadHolder,
  isSameState,
  passed,
  standingOf,
} from '../../../src/lock/dynamodb/head.ts';
import type { Protocol, Step } from '../../support/history/explore.ts';

/** The published design: a counter, a row for each ticket, and the client with the lowest row holds the lock. */
interface PublishedState {
  readonly counter: number;
  readonly rows: readonly number[];
  readonly clients: readonly { readonly at: 'begin' | 'ticket' | 'row' | 'holds' | 'done'; readonly ticket: number }[];
}

export function publishedDesign(clients: number): Protocol<PublishedState> {
  const change = (
    state: PublishedState,
    index: number,
    client: PublishedState['clients'][number],
  ): PublishedState['clients'] => state.clients.with(index, client);
  return {
    start: { counter: 0, rows: [], clients: Array.from({ length: clients }, () => ({ at: 'begin', ticket: 0 })) },
    steps: (state) =>
      state.clients.flatMap((client, index): Step<PublishedState>[] => {
        const { ticket } = client;
        switch (client.at) {
          case 'begin': {
            const counter = state.counter + 1;
            const next = change(state, index, { at: 'ticket', ticket: counter });
            return [{ what: `${index} takes ticket ${counter}`, state: { ...state, counter, clients: next } }];
          }
          case 'ticket': {
            const rows = [...state.rows, ticket].sort((a, b) => a - b);
            const next = change(state, index, { at: 'row', ticket });
            return [{ what: `${index} puts row ${ticket}`, state: { ...state, rows, clients: next } }];
          }
          case 'row':
            if (state.rows[0] !== ticket) return [];
            return [
              {
                what: `${index} sees itself first`,
                state: { ...state, clients: change(state, index, { at: 'holds', ticket }) },
              },
            ];
          case 'holds': {
            const rows = state.rows.filter((each) => each !== ticket);
            const next = change(state, index, { at: 'done', ticket });
            return [{ what: `${index} deletes row ${ticket}`, state: { ...state, rows, clients: next } }];
          }
          case 'done':
            return [];
        }
      }),
    fault: ({ clients: all }) => (all.filter((client) => client.at === 'holds').length > 1 ? 'two hold it' : undefined),
    isOver: ({ clients: all }) => all.every((client) => client.at === 'done'),
  };
}

/** The next step of a client of our protocol. */
type At = 'begin' | 'ticket' | 'row' | 'look' | 'decide' | 'holds' | 'release' | 'done';

interface Client {
  readonly at: At;
  readonly ticket: number;
  /** The token of its grant, as text, since states are JSON. */
  readonly token: string;
  readonly seen: Plain | undefined;
  readonly isDead: boolean;
  readonly hasBeaten: boolean;
  /** How often it took a ticket: bounded, else there would be no end of states. */
  readonly tries: number;
}

/** A head in the form of JSON. */
type Plain = Omit<Head, 'fence' | 'holders' | 'past'> & {
  readonly fence: string;
  readonly holders: readonly { readonly nonce: string; readonly token: string; readonly beat: string }[];
};

interface Row {
  readonly nonce: string;
  readonly isGone: boolean;
}

export interface Ours {
  readonly head: Plain;
  readonly rows: Readonly<Record<number, Row>>;
  readonly clients: readonly Client[];
  /** The greatest token that was ever granted. */
  readonly lastToken: string;
  readonly crashes: number;
  readonly losses: number;
  readonly problem?: string;
}

export interface OursOptions {
  readonly clients: number;
  /** How many clients may crash. */
  readonly crashes: number;
  /** True: live clients may be declared dead. */
  readonly isSuspicious: boolean;
  /** How many answers may be lost after the request was carried out. */
  readonly losses: number;
  /** A planted bug, to show that it is found. */
  readonly planted?: typeof GRABBED;
}

const MOST_TRIES = 2;
const GRABBED = 'a grant asks neither whose turn it is nor what was decided';
/** The owner of a place that was marked before its row arrived. */
const NOBODY = '';

export function ourProtocol(options: OursOptions): Protocol<Ours> {
  const client: Client = {
    at: 'begin',
    ticket: 0,
    token: '',
    seen: undefined,
    isDead: false,
    hasBeaten: false,
    tries: 0,
  };
  return {
    start: {
      head: toPlain(EMPTY),
      rows: {},
      clients: Array.from({ length: options.clients }, () => client),
      lastToken: '0',
      crashes: 0,
      losses: 0,
    },
    canonical,
    steps: (state) =>
      state.clients.flatMap((each, index) =>
        each.isDead ? [] : [...stepsOf(state, index, options), ...crashOf(state, index, options)],
      ),
    fault: (state) => state.problem ?? faultOf(state, options),
    isOver: ({ clients }) => clients.every((each) => each.isDead || each.at === 'done'),
  };
}

/**
 * The head never has two holders. As long as no live client is declared dead, two clients never count the lock as held at the
 * same time.
 */
function faultOf({ head, clients }: Ours, { isSuspicious }: OursOptions): string | undefined {
  if (head.holders.length > 1) return 'the head has two holders';
  const believers = clients.filter((each) => !each.isDead && each.at === 'holds');
  const valid = believers.filter((each) => head.holders.some((holder) => holder.token === each.token));
  if (valid.length > 1) return 'two hold it';
  return !isSuspicious && believers.length > 1 ? 'two believe that they hold it' : undefined;
}

function crashOf(state: Ours, index: number, { crashes }: OursOptions): Step<Ours>[] {
  if (state.crashes >= crashes || state.clients[index]?.at === 'done') return [];
  const next = withClient(state, index, { isDead: true });
  return [{ what: `${index} dies`, state: { ...next, crashes: state.crashes + 1 } }];
}

function stepsOf(state: Ours, index: number, options: OursOptions): Step<Ours>[] {
  const me = state.clients[index];
  if (me === undefined) return [];
  const head = fromPlain(state.head);
  const nonce = String(index);
  /** The request is carried out; its answer arrives or is lost. */
  const request = (what: string, done: Ours, answer: Partial<Client>): Step<Ours>[] => [
    { what: `${index} ${what}`, state: withClient(done, index, answer) },
    ...lost(options, done, `${index} ${what}`),
  ];
  switch (me.at) {
    case 'begin': {
      if (head.holders.some((holder) => holder.nonce === nonce)) return [mine(state, index, head)];
      const isFree = head.load === 0 && head.next > head.last;
      if (!isFree) return [{ what: `${index} is refused`, state: withClient(state, index, { at: 'ticket' }) }];
      const after = granted(head, holderOf(nonce, head.fence + 1n), undefined, new Set(), 0);
      return request('takes the free lock', record(state, after), { at: 'holds', token: String(after.fence) });
    }
    case 'ticket': {
      if (me.tries >= MOST_TRIES) return [];
      // The id with which it takes this ticket: a new one for each.
      const taker = `${nonce}.${me.tries}`;
      const after = head.taker === taker ? head : { ...head, last: head.last + 1, taker };
      const answer: Partial<Client> = { at: 'row', ticket: after.last, tries: me.tries + 1 };
      return request(`takes ticket ${after.last}`, { ...state, head: toPlain(after) }, answer);
    }
    case 'row': {
      const row = state.rows[me.ticket];
      if (row !== undefined && (row.isGone || row.nonce !== nonce)) {
        return [{ what: `${index} comes too late`, state: withClient(state, index, { at: 'ticket' }) }];
      }
      const rows = { ...state.rows, [me.ticket]: { nonce, isGone: false } };
      return request(`puts row ${me.ticket}`, { ...state, rows }, { at: 'look' });
    }
    case 'look':
      return [
        { what: `${index} looks`, state: withClient(state, index, { at: 'decide', seen: state.head }) },
        ...passing(state, index, options),
      ];
    case 'decide':
      return decisions(state, index, options);
    case 'holds': {
      const isMine = head.holders.some((holder) => holder.nonce === nonce);
      const beaten = {
        ...state.head,
        holders: state.head.holders.map((each) => (each.nonce === nonce ? { ...each, beat: '1' } : each)),
      };
      const beat = isMine && !me.hasBeaten ? request('renews', { ...state, head: beaten }, { hasBeaten: true }) : [];
      return [...beat, { what: `${index} is done`, state: withClient(state, index, { at: 'release' }) }];
    }
    case 'release': {
      const holders = head.holders.filter((holder) => holder.nonce !== nonce);
      const isMine = holders.length < head.holders.length;
      const after = isMine ? { ...head, holders, load: 0 } : head;
      return request('releases', { ...state, head: toPlain(after) }, { at: 'done', seen: undefined });
    }
    case 'done':
      return [];
  }
}

/** The decision on the head that it has read; the head may have changed meanwhile. */
function decisions(state: Ours, index: number, options: OursOptions): Step<Ours>[] {
  const me = state.clients[index];
  if (me?.seen === undefined) return [];
  const seen = fromPlain(me.seen);
  const nonce = String(index);
  const again = (what: string): Step<Ours> => ({
    what: `${index} ${what}`,
    state: withClient(state, index, { at: 'look', seen: undefined }),
  });
  const suspects = seen.holders.filter(({ nonce: other }) => other !== nonce && maySuspect(state, other, options));
  const found: Step<Ours>[] = [];
  for (const stale of [new Set<string>(), new Set(suspects.map((holder) => holder.nonce))]) {
    const isGrabbed = options.planted === GRABBED && seen.holders.length === 0;
    const standing = isGrabbed ? 'free' : standingOf(seen, { nonce, capacity: 1, ticket: me.ticket }, stale);
    if (standing === 'held') found.push(mine(state, index, seen));
    else if (standing === 'lost') {
      const next = withClient(state, index, { at: 'ticket', seen: undefined });
      found.push({ what: `${index} has lost its place`, state: next });
    } else if (standing === 'waits') found.push(again('waits'));
    else {
      const head = fromPlain(state.head);
      const isSame = isSameState(head, seen) || options.planted === GRABBED;
      const isUntouched = [...stale].every((other) => beatOf(head, other) === beatOf(seen, other));
      if (!isSame || !isUntouched) found.push(again('is refused, as something was decided'));
      else {
        const token = head.fence + 1n;
        // The write does not touch the tickets, which others may take meanwhile.
        const after = {
          ...granted(seen, holderOf(nonce, token), me.ticket, stale, 0),
          last: head.last,
          taker: head.taker,
        };
        const done = record(state, after);
        found.push({
          what: `${index} is granted token ${token}`,
          state: withClient(done, index, { at: 'holds', token: String(token), seen: undefined }),
        });
        found.push(
          ...lost(options, withClient(done, index, { at: 'look', seen: undefined }), `${index} is granted it`),
        );
      }
    }
  }
  return found;
}

/** Marks and passes over a first waiter that is dead or declared dead. Both are one step, because each write is conditional. */
function passing(state: Ours, index: number, options: OursOptions): Step<Ours>[] {
  const { next, last } = state.head;
  const me = state.clients[index];
  if (me === undefined || next > last || next >= me.ticket) return [];
  const row = state.rows[next];
  const owner = state.clients.findIndex((each) => each.ticket === next && each.at !== 'done');
  const isDead = row?.isGone || owner < 0 || maySuspect(state, String(owner), options);
  if (!isDead) return [];
  const rows = { ...state.rows, [next]: { nonce: row?.nonce ?? NOBODY, isGone: true } };
  const buried = { what: `${index} marks place ${next} as dead`, state: { ...state, rows } };
  if (!row?.isGone) return [buried];
  const after = passed(fromPlain(state.head), next + 1);
  return [{ what: `${index} passes over place ${next}`, state: { ...state, head: toPlain(after) } }];
}

function maySuspect({ clients }: Ours, nonce: string, { isSuspicious }: OursOptions): boolean {
  const other = clients[Number(nonce)];
  return isSuspicious || other === undefined || other.isDead || other.at === 'done';
}

/** The client finds that it holds the lock: an answer was lost. */
function mine(state: Ours, index: number, head: Head): Step<Ours> {
  const token = String(head.holders.find((holder) => holder.nonce === String(index))?.token ?? '');
  // It renews before it continues; the renewal is refused if there is another holder meanwhile.
  const isHeld = state.head.holders.some((holder) => holder.token === token);
  const next: Partial<Client> = isHeld ? { at: 'holds', token, seen: undefined } : { at: 'look', seen: undefined };
  return { what: `${index} finds its own`, state: withClient(state, index, next) };
}

/** The same step with a lost answer. */
function lost({ losses }: OursOptions, done: Ours, what: string): Step<Ours>[] {
  if (done.losses >= losses) return [];
  return [{ what: `${what}, and its answer is lost`, state: { ...done, losses: done.losses + 1 } }];
}

const ORDERS: Readonly<Record<number, readonly (readonly number[])[]>> = {
  2: [
    [0, 1],
    [1, 0],
  ],
  3: [
    [0, 1, 2],
    [0, 2, 1],
    [1, 0, 2],
    [1, 2, 0],
    [2, 0, 1],
    [2, 1, 0],
  ],
};

/** Of the orders that sort the clients by their next steps, the one with the first text. */
function canonical(state: Ours): Ours {
  const briefs = state.clients.map(({ at, ticket, token, isDead, hasBeaten, tries }) =>
    [at, ticket, token, isDead, hasBeaten, tries].join(),
  );
  const orders = (ORDERS[state.clients.length] ?? []).filter((order) =>
    order.every((each, place) => place === 0 || (briefs[order[place - 1] ?? 0] ?? '') <= (briefs[each] ?? '')),
  );
  const [only = []] = orders;
  if (orders.length === 1) return inOrder(state, only);
  const [first] = orders
    .map((order) => inOrder(state, order))
    .map((each) => ({ each, text: JSON.stringify(each) }))
    .sort((a, b) => (a.text < b.text ? -1 : 1));
  return first?.each ?? state;
}

/** The state with its clients, and all references to them, in this order. */
function inOrder(state: Ours, order: readonly number[]): Ours {
  const name = (old: string): string => (old === NOBODY ? old : String(order.indexOf(Number(old))));
  const inHead = (head: Plain): Plain => ({
    ...head,
    holders: head.holders.map((holder) => ({ ...holder, nonce: name(holder.nonce) })),
    taker: head.taker?.replace(/^\d+/, name),
  });
  const rows = Object.entries(state.rows).map(([ticket, row]) => [ticket, { ...row, nonce: name(row.nonce) }]);
  return {
    ...state,
    head: inHead(state.head),
    rows: Object.fromEntries(rows),
    clients: order
      .flatMap((old) => state.clients[old] ?? [])
      .map((client) => ({
        ...client,
        seen: client.seen && inHead(client.seen),
      })),
  };
}

function record(state: Ours, after: Head): Ours {
  const isRising = after.fence > BigInt(state.lastToken);
  return {
    ...state,
    head: toPlain(after),
    lastToken: String(after.fence),
    ...(isRising ? {} : { problem: `token ${after.fence} came after ${state.lastToken}` }),
  };
}

function withClient(state: Ours, index: number, changes: Partial<Client>): Ours {
  const client = state.clients[index];
  return client === undefined ? state : { ...state, clients: state.clients.with(index, { ...client, ...changes }) };
}

function beatOf(head: Head, nonce: string): string | undefined {
  return head.holders.find((holder) => holder.nonce === nonce)?.beat;
}

function holderOf(nonce: string, token: bigint, beat = ''): HeadHolder {
  return {
    nonce,
    token,
    capacity: 1,
    leaseMs: 1,
    host: '',
    pid: 0,
    grantedAt: 0,
    beatAt: 0,
    beat,
    waitsFor: undefined,
  };
}

function toPlain({ last, next, fence, load, holders, ranAt, taker }: Head): Plain {
  const plain = holders.map(({ nonce, token, beat }) => ({ nonce, token: String(token), beat }));
  return { last, next, fence: String(fence), load, holders: plain, ranAt, taker };
}

function fromPlain({ fence, holders, ...rest }: Plain): Head {
  const full = holders.map(({ nonce, token, beat }) => holderOf(nonce, BigInt(token), beat));
  return { ...rest, ranAt: undefined, taker: rest.taker, fence: BigInt(fence), holders: full, past: [] };
}
