import { EventEmitter } from 'node:events';
import { judge } from './judge.ts';

const GREETINGS = new WeakMap<object, Map<string, string>>();

/**
 * Keeps what a server says about itself while this connection opens. This costs no statement, and comes before the first one.
 * Call it before the client connects.
 */
export function keepGreeting(client: object): void {
  const connection: unknown = Reflect.get(client, 'connection');
  if (!(connection instanceof EventEmitter)) return;
  const said = new Map<string, string>();
  GREETINGS.set(client, said);
  connection.on('parameterStatus', (message: object) => {
    said.set(String(Reflect.get(message, 'parameterName')), String(Reflect.get(message, 'parameterValue')));
  });
}

/**
 * Why Pawl does not work with the server of a new connection; undefined if it does. Behind a pooler that passes nothing on,
 * Pawl learns the kind of the server from its first statement: see {@link judge}.
 */
export function refusalOf(client: object, address: string): Error | undefined {
  const said = GREETINGS.get(client);
  const version = said?.get('server_version');
  try {
    judge(said?.get('crdb_version') ?? (version === undefined ? '' : `PostgreSQL ${version}`), address);
    return undefined;
  } catch (error) {
    return error instanceof Error ? error : new Error(String(error));
  }
}
