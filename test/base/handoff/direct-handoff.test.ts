import { expect, onTestFinished, test } from 'vitest';
import { DirectHandoff } from '../../../src/base/handoff/direct-handoff.ts';
import type { Handoff, Offer, RecallResult } from '../../../src/base/handoff/handoff.ts';
import { until } from '../../support/eventually.ts';

/** A worker's offers, and what the worker does about them; the database is played by the test. */
async function start(isAsleep = (): boolean => true): Promise<{
  readonly offers: DirectHandoff<Handoff>;
  readonly sent: readonly Offer[];
  readonly reconnect: () => void;
}> {
  const sent: Offer[] = [];
  let reconnect = (): void => {};
  const hearing = { arrived: Promise.resolve(), stop: () => Promise.resolve() };
  const offers = new DirectHandoff<Handoff>({
    name: 'test',
    store: {
      offer: async (offer) => void sent.push(offer),
      withdraw: () => Promise.resolve([]),
      listenForHandoffs: async (_channel, { onReconnect }) => {
        reconnect = onReconnect;
        return hearing;
      },
    },
    worker: () => 1,
    isFree: () => true,
    isAsleep,
    onHandoff: () => {},
    onError: (error) => {
      throw error;
    },
  });
  onTestFinished(() => offers.stop());
  offers.start(hearing);
  await until('the first offer is sent, if the worker sleeps', () => sent.length > 0 || !isAsleep());
  return { offers, sent, reconnect: () => reconnect() };
}

const lostOne = (): Promise<RecallResult> => Promise.resolve({ lost: 1, offers: [] });

test('a hand-off whose notification is lost is the last one, until a notification comes', async () => {
  const { offers } = await start();
  await offers.recall(lostOne);
  expect(offers.nextOffer()).toBeUndefined();
  offers.noteNotification();
  expect(offers.nextOffer()).toMatchObject({ number: 2 });
});

test('what was lost with the connection before says nothing of the new one: offers are made again', async () => {
  const { offers, reconnect } = await start();
  reconnect();
  await offers.recall(lostOne);
  expect(offers.nextOffer()).toMatchObject({ number: 2 });
});

test('the same when the connection is renewed while it is asked what was lost', async () => {
  const { offers, reconnect } = await start();
  await offers.recall(() => {
    reconnect();
    return lostOne();
  });
  expect(offers.nextOffer()).toMatchObject({ number: 2 });
  // That was asked before the new connection stood, perhaps: it is asked once more.
  expect(offers.isOverdue(60_000)).toBe(true);
});

test('the same when the first answer to that question was lost, too', async () => {
  const { offers, reconnect } = await start();
  reconnect();
  await expect(offers.recall(() => Promise.reject(new Error('no answer')))).rejects.toThrow('no answer');
  await offers.recall(lostOne);
  expect(offers.nextOffer()).toMatchObject({ number: 2 });
});

test('a worker that polls sends no offer by itself, since its claim takes one along', async () => {
  let asked = 0;
  const { offers, sent } = await start(() => {
    asked += 1;
    return false;
  });
  const before = asked;
  offers.offerSoon();
  await until('the time of the offer has come', () => asked > before);
  expect(sent).toEqual([]);
  expect(offers.nextOffer()).toMatchObject({ number: 1 });
});
