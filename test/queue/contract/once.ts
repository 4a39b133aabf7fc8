import { expect, onTestFinished, test } from 'vitest';
import { eventually, until } from '../../support/eventually.ts';
import { FEW, type Fixture, gate, start } from './fixture.ts';

export function oncePromises(open: () => Promise<Fixture>): void {
  test('once() runs what is ready, says what became of it, and stops', async () => {
    const { hold, ...fixture } = await open();
    const queue = fixture.queue({ kinds: { send: {} }, retry: { attempts: 2, backoff: { kind: 'fixed', min: '1h' } } });
    const ids = await queue.enqueueMany([
      ...Array.from({ length: 30 }, (_, n) => ({ kind: 'send' as const, payload: 'fine', key: `k${n % 3}` })),
      ...Array.from({ length: 20 }, () => ({ kind: 'send' as const, payload: 'fine' })),
      { kind: 'send', payload: 'fails' },
      { kind: 'send', payload: 'later', runAt: new Date(Date.now() + 3_600_000) },
    ]);
    const worker = queue.work(
      {
        send: ({ payload }) => {
          if (payload === 'fails') throw new Error('it fails');
        },
      },
      { hold, poll: '1h', ...FEW },
    );
    expect(await worker.once()).toEqual({ complete: 50, retried: 1, error: 0, cancelled: 0 });
    expect(worker.problem).toMatch(/stopping/);
    for (const id of ids.slice(0, 50)) expect(await fixture.job(id)).toMatchObject({ status: 'complete' });
    expect(await queue.stats()).toMatchObject({ new: 2, delayed: 2, workers: 0 });
  });

  test('once() of an empty queue ends at once, and so does that of a paused one', async () => {
    const { hold, ...fixture } = await open();
    const queue = fixture.queue({ kinds: { send: {} }, shards: 4 });
    expect(await queue.work({ send: () => {} }, { hold, poll: '1h', ...FEW }).once()).toMatchObject({ complete: 0 });
    await queue.pause();
    await queue.enqueue('send', 1);
    expect(await queue.work({ send: () => {} }, { hold, poll: '1h', ...FEW }).once()).toMatchObject({ complete: 0 });
    expect(await queue.stats()).toMatchObject({ ready: 1 });
  });

  test('once() runs what its own jobs make ready', async () => {
    const { hold, ...fixture } = await open();
    const queue = fixture.queue({ kinds: { send: {} }, shards: 3 });
    await queue.enqueueMany(Array.from({ length: 12 }, (_, n) => ({ kind: 'send', payload: 3, key: `k${n}` })));
    const result = await queue
      .work(
        {
          send: async ({ payload, key }) => {
            if (typeof payload === 'number' && payload > 0)
              await queue.enqueue('send', payload - 1, { key: key ?? '' });
          },
        },
        { hold, poll: '1h', ...FEW },
      )
      .once();
    expect(result).toMatchObject({ complete: 48 });
    expect(await queue.stats()).toMatchObject({ new: 0, 'in-progress': 0 });
  });

  test('once() does not wait for the job that another worker runs, nor for what waits behind it', async () => {
    const { hold, ...fixture } = await open();
    const queue = fixture.queue({ kinds: { send: {} } });
    const [running, goOn] = [gate(), gate()];
    onTestFinished(() => goOn.open());
    const { id: first } = await queue.enqueue('send', 1, { key: 'k' });
    await start(
      { hold, ...fixture },
      queue,
      {
        send: async () => {
          running.open();
          await goOn.opened;
        },
      },
      { concurrency: 1 },
    );
    await running.opened;
    const [behind = '', free = ''] = await queue.enqueueMany([
      { kind: 'send', payload: 2, key: 'k' },
      { kind: 'send', payload: 3, key: 'other' },
    ]);
    const { complete } = await queue.work({ send: () => {} }, { hold, poll: '1h', ...FEW }).once();
    expect(complete).toBe(1);
    expect(await fixture.job(free)).toMatchObject({ status: 'complete' });
    expect(await fixture.job(behind)).toMatchObject({ status: 'new' });
    goOn.open();
    await eventually(async () => expect(await fixture.job(behind)).toMatchObject({ status: 'complete' }));
    expect(await fixture.job(first)).toMatchObject({ status: 'complete' });
  });

  test('once() with a timeout ends although there is always more to do', async () => {
    const { hold, ...fixture } = await open();
    const queue = fixture.queue({ kinds: { send: {} } });
    await queue.enqueue('send', 0);
    let ran = 0;
    const worker = queue.work(
      {
        send: async () => {
          await queue.enqueue('send', 0);
          ran += 1;
        },
      },
      { hold, poll: '1h', concurrency: 2 },
    );
    // On a busy machine its start may take longer than that.
    await until('it has run one', () => ran > 0);
    const { complete } = await worker.once({ timeout: '500ms' });
    expect(complete).toBeGreaterThan(0);
    expect(await queue.stats()).toMatchObject({ new: 1, 'in-progress': 0 });
  });

  test('once() ends when its worker is stopped', async () => {
    const { hold, ...fixture } = await open();
    const queue = fixture.queue({ kinds: { send: {} } });
    const [running, goOn] = [gate(), gate()];
    await queue.enqueue('send', 0);
    const worker = queue.work(
      {
        send: async () => {
          running.open();
          await goOn.opened;
        },
      },
      { hold, ...FEW },
    );
    const ended = worker.once();
    await running.opened;
    const stopped = worker.stop();
    goOn.open();
    expect(await ended).toMatchObject({ complete: 1 });
    await stopped;
  });
}
