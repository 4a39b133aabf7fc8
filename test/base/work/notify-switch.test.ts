import { expect, test } from 'vitest';
import { BUSY_MS } from '../../../src/base/work/deadlines.ts';
import { NotifySwitch } from '../../../src/base/work/notify-switch.ts';
import { type Gate, gate } from '../../queue/contract/fixture.ts';
import { until } from '../../support/eventually.ts';

interface Write {
  readonly isOn: boolean;
  readonly answer: Gate;
}

test('a worker that sleeps wants to be notified, however late it is written that it does not while it is busy', async () => {
  const writes: Write[] = [];
  let wakes = 0;
  const notify = new NotifySwitch({
    write: (_worker, isOn) => {
      const answer = gate();
      writes.push({ isOn, answer });
      return answer.opened;
    },
    wake: () => void (wakes += 1),
    onError: (error) => expect.fail(String(error)),
  });
  await until(`it is busy for ${BUSY_MS} ms`, () => notify.mayTurnOff());
  notify.turnOff(1);
  expect(notify.noteIdle(1)).toBe(false);
  await new Promise((resolve) => setImmediate(resolve));
  // Two statements on two connections are carried out in any order.
  expect(writes.map(({ isOn }) => isOn)).toEqual([false]);
  writes[0]?.answer.open();
  await until('the second one is sent', () => writes.length === 2);
  expect([writes[1]?.isOn, wakes]).toEqual([true, 0]);
  writes[1]?.answer.open();
  await until('it polls once more', () => wakes === 1);
  expect(notify.noteIdle(1)).toBe(true);
});

test('a worker that stays busy says so again where that could not be written', async () => {
  const writes: boolean[] = [];
  const errors: unknown[] = [];
  const notify = new NotifySwitch({
    write: (_worker, isOn) => {
      writes.push(isOn);
      return writes.length === 1 ? Promise.reject(new Error('lost')) : Promise.resolve();
    },
    wake: () => {},
    onError: (error) => errors.push(error),
  });
  await until(`it is busy for ${BUSY_MS} ms`, () => notify.mayTurnOff());
  notify.turnOff(1);
  await until('that has failed', () => errors.length === 1);
  expect(notify.mayTurnOff()).toBe(true);
  notify.turnOff(1);
  await new Promise((resolve) => setImmediate(resolve));
  expect([writes, notify.isOn]).toEqual([[false, false], false]);
});
