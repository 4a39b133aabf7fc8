import { expect, onTestFinished, test } from 'vitest';
import { NotFound, SerializationFailed } from '../../../src/base/errors.ts';
import { type PostgresEngine, postgres, statement, type Transaction } from '../../../src/engine/postgres/index.ts';
import { createQueue, type Queue } from '../../../src/queue/index.ts';
import { freshDatabase } from '../../support/database.ts';

// A queue is registered by its first use, and a transaction above read committed that began before that cannot see it.

type Letters = Queue<{ plain: object; unique: { unique: 'key' } }>;
type First = (queue: Letters, tx: Transaction) => Promise<unknown>;

const FIRST_USES: readonly (readonly [string, First])[] = [
  ['enqueue', (queue, tx) => queue.enqueue('unique', 1, { key: 'k', tx })],
  ['enqueue after a job', async (queue, tx) => queue.enqueue('plain', 1, { after: [(await plain(queue, tx)).id], tx })],
  ['enqueueMany', (queue, tx) => queue.enqueueMany([{ kind: 'unique', payload: 1, key: 'k' }], { tx })],
  ['flow', (queue, tx) => queue.flow([{ name: 'one', kind: 'plain', payload: 1 }], { tx })],
  ['batch', (queue, tx) => queue.batch({ onDone: { kind: 'plain', payload: 1 } }, { tx })],
];

const plain = (queue: Letters, tx: Transaction): Promise<{ id: string }> => queue.enqueue('plain', 1, { tx });

async function fresh(): Promise<PostgresEngine> {
  const engine = postgres((await freshDatabase()).url, { max: 3 });
  onTestFinished(() => engine.stop());
  return engine;
}

const declare = (engine: PostgresEngine, name: string): Letters =>
  createQueue(engine, name, { kinds: { plain: {}, unique: { unique: 'key' } } });

/** Its first statement takes the snapshot of a transaction. */
const open = (tx: Transaction): Promise<unknown> => tx.query(statement('test.open', 'select 1'));

test.each(['repeatable read', 'serializable'] as const)(
  'the first use of a queue in a transaction that is %s repeats it once',
  async (isolation) => {
    const engine = await fresh();
    for (const [name, use] of FIRST_USES) {
      const queue = declare(engine, name);
      let tries = 0;
      await engine.transaction(
        async (tx) => {
          tries += 1;
          await open(tx);
          await use(queue, tx);
        },
        { isolation },
      );
      expect([name, tries]).toEqual([name, 2]);
    }
  },
);

test('a transaction of another library is told to run again, also where only the kind is new', async () => {
  const engine = await fresh();
  await createQueue(engine, 'letters', { kinds: { plain: {} } }).register();
  const queue = declare(engine, 'letters');
  const once = { isolation: 'repeatable read', retries: 0 } as const;
  const refused = engine.transaction(async (tx) => {
    await open(tx);
    await queue.enqueue('unique', 1, { key: 'k', tx });
  }, once);
  await expect(refused).rejects.toBeInstanceOf(SerializationFailed);
  await expect(refused).rejects.toThrow(
    /began before a queue or kind .* was registered; run it again, or await queue\.register\(\)/,
  );
});

test('from SQL a queue that is not there is not found, whatever the isolation', async () => {
  const engine = await fresh();
  const enqueue = statement('test.enqueue', `select pawl.enqueue('{"queue": "nowhere", "kind": "plain"}')`);
  for (const isolation of ['read committed', 'serializable'] as const) {
    const where = isolation === 'serializable' ? ' in the snapshot of this transaction' : '';
    const lost = engine.transaction((tx) => tx.query(enqueue), { isolation });
    await expect(lost).rejects.toThrow(
      new NotFound(`queue "nowhere" does not exist${where}; create it with createQueue(…) and register() it first`),
    );
  }
});
