import { expect, onTestFinished, test, vi } from 'vitest';
import { BUSY_AGAIN_MS, BUSY_MS } from '../../../src/base/work/deadlines.ts';
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

test('a worker whose write of "busy" has failed, and may have been carried out, turns notifications on before it sleeps', async () => {
  const writes: boolean[] = [];
  const errors: unknown[] = [];
  let wakes = 0;
  const notify = new NotifySwitch({
    write: (_worker, isOn) => {
      writes.push(isOn);
      return isOn ? Promise.resolve() : Promise.reject(new Error('no answer'));
    },
    wake: () => void (wakes += 1),
    onError: (error) => errors.push(error),
  });
  await until(`it is busy for ${BUSY_MS} ms`, () => notify.mayTurnOff());
  notify.turnOff(1);
  await until('that has failed', () => errors.length === 1);
  expect(notify.noteIdle(1)).toBe(false);
  await until('it polls once more', () => wakes === 1);
  expect(writes).toEqual([false, true]);
  expect(notify.noteIdle(1)).toBe(true);
});

test('a worker that stays busy says so again and again', () => {
  const clock = vi.spyOn(performance, 'now');
  onTestFinished(() => clock.mockRestore());
  const writes: boolean[] = [];
  const notify = new NotifySwitch({
    write: (_worker, isOn) => Promise.resolve(void writes.push(isOn)),
    wake: () => {},
    onError: (error) => expect.fail(String(error)),
  });
  for (let ms = 0; ms <= BUSY_MS + 2 * BUSY_AGAIN_MS; ms += 100) {
    clock.mockReturnValue(ms);
    if (notify.mayTurnOff()) notify.turnOff(1);
  }
  expect(writes).toEqual([false, false]);
});
