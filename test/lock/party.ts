import type pg from 'pg';
import { until } from '../support/eventually.ts';
import { type Child, spawnChild } from '../support/process.ts';
import type { PartySettings } from './ground.ts';

/** Orders for party.child.ts, without their number. */
type Order = Record<string, unknown> & { do: string };

/** What a party answered, or told by itself. */
export type Message = Record<string, unknown>;

/** A process of its own that takes part in locking. */
export interface Party {
  readonly child: Child;
  /** @throws Error  with what the child's call failed with */
  ask(order: Order): Promise<Message>;
  /** What it told without being asked. */
  readonly events: readonly Message[];
  /** Waits for an event that fits. */
  event(fits: (event: Message) => boolean, timeoutMs?: number): Promise<Message>;
}

/** Starts a party. To be called inside a test. */
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
  // Ends with the child; what was asked of it is then never answered.
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
    event: (fits, timeoutMs) => until('the party tells it', () => events.find(fits), timeoutMs),
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
