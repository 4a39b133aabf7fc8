import type pg from 'pg';
import { until } from '../support/eventually.ts';
import { type Child, spawnChild } from '../support/process.ts';
import type { PartySettings } from './ground.ts';

/** Orders for party.child.ts, without their number. */
type Order = Record<string, unknown> & { do: string };

/** An answer or an event of a party. */
export type Message = Record<string, unknown>;

/** A child process that takes part in locking. */
export interface Party {
  readonly child: Child;
  /** @throws Error  the error of the call in the child */
  ask(order: Order): Promise<Message>;
  /** Its events so far. */
  readonly events: readonly Message[];
  /** Waits for an event that fits. */
  event(fits: (event: Message) => boolean, timeoutMs?: number): Promise<Message>;
}

/** Starts a party. Call it inside a test. */
export async function startParty(url: string, settings: PartySettings = {}): Promise<Party> {
  const child = spawnChild('lock/party.child.ts', [url, JSON.stringify(settings)]);
  await child.message();
  const events: Message[] = [];
  const answers = new Map<number, (message: Message) => void>();
  let orders = 0;
  const read = async (): Promise<void> => {
    for (;;) {
      const message = await child.message<Message>();
      const settle = answers.get(Number(message['id']));
      if (settle === undefined) events.push(message);
      else settle(message);
    }
  };
  // It ends with the child; open orders are then never answered.
  void read().catch(() => {});
  return {
    child,
    events,
    ask: async (order) => {
      const id = (orders += 1);
      const answer = await new Promise<Message>((resolve) => {
        answers.set(id, resolve);
        child.send({ id, ...order });
      });
      if (answer['error'] !== undefined)
        throw Object.assign(new Error(String(answer['message'])), { name: answer['error'] });
      return answer;
    },
    event: (fits, timeoutMs) => until('the party reports the event', () => events.find(fits), timeoutMs),
  };
}

/** The tables that parties write to. */
export const PROTECTED = `
create table protected (name text primary key, value int not null);
create table written (seq bigint generated always as identity, name text, value int, token bigint);
`;

/** Whether a party is between its read and its write. */
export async function hasRead(client: pg.Client): Promise<boolean> {
  const { rows } = await client.query(
    `select from pg_stat_activity
     where datname = current_database() and state = 'idle in transaction' and query like '%from protected%'`,
  );
  return rows.length > 0;
}
