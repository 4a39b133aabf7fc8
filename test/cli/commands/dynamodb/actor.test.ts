import { beforeAll, describe, expect, test } from 'vitest';
import { actor, createActors, state } from '../../../../src/actor/index.ts';
import { type DynamoEngine, dynamodb } from '../../../../src/engine/dynamodb/index.ts';
import { dynamoClient, sharedDynamo } from '../../../support/dynamodb.ts';
import { warmPawl } from '../../warm-pawl.ts';

const local = await sharedDynamo();
const TABLE = 'cli-actors';
const at = ['--dynamodb', TABLE, '--endpoint', local.endpoint];
let engine: DynamoEngine;

beforeAll(async () => {
  engine = dynamodb(dynamoClient(local.endpoint), { table: TABLE });
  await engine.migrate();
});

const json = async (...words: string[]): Promise<unknown> =>
  JSON.parse((await warmPawl([...words, ...at, '-o', 'json'])).stdout);

describe.skipIf(local.kind === 'dynalite')('actors on DynamoDB', () => {
  test('are listed, shown, woken, moved, paused and drawn', async () => {
    const Door = actor('Door', {
      semaphores: ['knock'],
      initial: 'closed',
      states: {
        closed: state({ to: ['open'], run: (a) => (a.take('knock') ? a.to('open') : a.hibernate()) }),
        open: state({ run: (a) => a.done('come in') }),
      },
    });
    const actors = createActors(engine, [Door]);
    const { id } = await actors.create(Door, {}, { key: 'front' });
    expect(await json('actor', 'list')).toMatchObject([{ id, type: 'Door', state: 'closed', key: 'front' }]);
    expect((await warmPawl(['actor', 'incr', id, 'knock', ...at])).code).toBe(0);
    expect(await json('actor', 'show', id)).toMatchObject({ id, semaphores: { knock: 1 }, status: 'due' });
    expect((await warmPawl(['actor', 'pause', '--type', 'Door', '--state', 'open', ...at])).code).toBe(0);
    await actors.work(id);
    expect(await json('actor', 'show', id)).toMatchObject({ state: 'open' });
    expect((await warmPawl(['actor', 'move', id, 'closed', '--reason', 'draught', ...at])).code).toBe(0);
    expect(await json('actor', 'history', id)).toMatchObject([
      { reason: 'created' },
      { reason: 'to' },
      { to: 'closed' },
    ]);
    expect((await warmPawl(['actor', 'diagram', 'Door', ...at])).stdout).toContain('closed --> open');
    const missing = await warmPawl(['actor', 'show', '987654321', ...at]);
    expect(missing).toMatchObject({ code: 4, stdout: '' });
  });

  test('pages are listed, acknowledged and resolved', async () => {
    const { id } = await createActors(engine, [
      actor('Any', { initial: 'a', states: { a: state({ run: (a) => a.done() }) } }),
    ]).page({
      tag: 'door',
      summary: 'it creaks',
    });
    expect(await json('page', 'list')).toMatchObject([{ id, tag: 'door', status: 'open' }]);
    expect((await warmPawl(['page', 'ack', id, '--by', 'ada', ...at])).code).toBe(0);
    expect(await json('page', 'show', id)).toMatchObject({ status: 'acked', ackedBy: 'ada' });
    expect((await warmPawl(['page', 'resolve', id, ...at])).code).toBe(0);
    expect(await json('page', 'list')).toEqual([]);
  });
});
