import { setTimeout as sleep } from 'node:timers/promises';
import { expect, onTestFinished, test } from 'vitest';
import { actor, state } from '../../../src/actor/index.ts';
import { ConnectionFailed } from '../../../src/base/errors.ts';
import { faults } from '../../../src/base/fault.ts';
import { aborted, until } from '../../support/eventually.ts';
import { fresh, type OpenActors, start } from './open.ts';

/** What is promised of turns that come by the clock, are interrupted, or take their process with them. */
export function turnContract(open: OpenActors): void {
  test('every brings a turn each time that it has passed', async () => {
    const Clock = actor(fresh('Clock'), {
      initial: 'ticks',
      states: {
        ticks: state({
          every: '20ms',
          run: (a) => {
            const ticks = Number(a.fields['ticks']) + 1;
            return ticks === 3 ? a.done(ticks) : a.stay({ ticks });
          },
        }),
      },
    });
    const actors = await open([Clock]);
    const { id } = await actors.create(Clock, { ticks: 0 });
    await start(actors);
    expect((await actors.waitFor(id)).result).toBe(3);
  });

  test('a semaphore of interrupt aborts the signal of the turn that runs, and is there for the next one', async () => {
    const reasons: string[] = [];
    const Patient = actor(fresh('Patient'), {
      semaphores: ['hurry'],
      initial: 'waits',
      states: {
        waits: state({
          interrupt: ['hurry'],
          run: async (a) => {
            if (a.take('hurry')) return a.done(a.attempt);
            reasons.push('begun');
            await aborted(a.signal);
            reasons.push(String(a.signal.reason));
            throw new Error('interrupted');
          },
        }),
      },
    });
    const actors = await open([Patient]);
    const { id } = await actors.create(Patient, {});
    await start(actors);
    await until('its turn has begun', () => reasons.length === 1);
    await actors.incr(id, 'hurry');
    // The turn that was interrupted is given back uncharged.
    expect((await actors.waitFor(id)).result).toBe(1);
    expect(reasons[1]).toMatch(/hurry/);
  });

  for (const raises of [['destroy'], ['nudge', 'destroy']] as const) {
    test(`${raises.join(' and ')}: what always leads to waits for no backoff of a turn that fails without having learned of it`, async () => {
      let [begun, fail] = [0, (): void => {}];
      const Agent = actor(fresh('Agent'), {
        semaphores: ['destroy', 'nudge'],
        initial: 'thinks',
        always: { destroy: 'ends' },
        backoff: { min: '1h' },
        states: {
          thinks: state({
            run: async () => {
              begun += 1;
              await new Promise<void>((resolve) => {
                fail = resolve;
              });
              throw new Error('the mail server is down');
            },
          }),
          ends: state({ run: (a) => a.done('destroyed') }),
        },
      });
      const Passer = actor(fresh('Passer'), {
        initial: 'passes',
        states: { passes: state({ run: (a) => a.done() }) },
      });
      const actors = await open([Agent, Passer]);
      const { id } = await actors.create(Agent, {});
      // A turn by hand is not interrupted.
      const turn = actors.work(id);
      await until('it runs', () => begun === 1);
      await start(actors, { poll: '50ms' });
      for (const name of raises) {
        await actors.incr(id, name);
        // The worker has learned of the raise once it has polled some times.
        for (let polls = 0; polls < 3; polls += 1) await actors.waitFor((await actors.create(Passer, {})).id);
      }
      fail();
      expect(await turn).toMatchObject({ kind: 'failed' });
      expect((await actors.waitFor(id, { timeout: '30s' })).result).toBe('destroyed');
      expect(begun).toBe(1);
    });
  }

  test('what a claim brings while its worker stops, after more than a second, is given back uncharged', async () => {
    const Brief = actor(fresh('Brief'), {
      initial: 'works',
      states: { works: state({ run: (a) => a.done(a.attempt) }) },
    });
    const actors = await open([Brief]);
    const { id } = await actors.create(Brief, {});
    let [claims, goOn] = [0, (): void => {}];
    const late = new Promise<void>((resolve) => {
      goOn = resolve;
    });
    const hold = (): Promise<void> => {
      claims += 1;
      return late;
    };
    const disarm = faults.arm('actor.after_claim', hold, { occurrence: 1 });
    onTestFinished(disarm);
    const dispatcher = await start(actors, { lease: '60s' });
    await until('it has claimed', () => claims > 0);
    const stopped = dispatcher.stop({ timeout: 0 });
    await sleep(1500);
    goOn();
    await stopped;
    disarm();
    await start(actors);
    expect((await actors.waitFor(id, { timeout: '40s' })).result).toBe(1);
    expect((await actors.history(id)).map(({ reason }) => reason)).toEqual(['created', 'done']);
  });

  test('a turn by hand that has not begun, since the answer to its claim was lost, is given back at once, uncharged', async () => {
    const Brief = actor(fresh('Brief'), {
      initial: 'works',
      states: { works: state({ run: (a) => a.done(a.attempt) }) },
    });
    const actors = await open([Brief]);
    const { id } = await actors.create(Brief, {});
    const lose = (): never => {
      throw new ConnectionFailed('no answer in time', { outcome: 'unknown' });
    };
    onTestFinished(faults.arm('actor.after_claim', lose, { occurrence: 1 }));
    await expect(actors.work(id)).rejects.toThrow(ConnectionFailed);
    expect(await actors.work(id)).toMatchObject({ kind: 'done' });
    expect((await actors.get(id)).result).toBe(1);
    expect((await actors.history(id)).map(({ reason }) => reason)).toEqual(['created', 'done']);
  });

  test('an actor that was lost twice is run alone, while nothing else runs in that process', async () => {
    const running = new Set<string>();
    const seen: string[][] = [];
    const Heavy = actor(fresh('Heavy'), {
      initial: 'works',
      backoff: { kind: 'fixed', min: 1 },
      states: {
        works: state({
          run: async (a) => {
            running.add(a.id);
            const isSuspect = a.fields['isSuspect'] === true;
            if (isSuspect && seen.length < 3) seen.push([...running]);
            if (isSuspect && seen.length < 3) await aborted(a.signal);
            running.delete(a.id);
            return a.done();
          },
        }),
      },
    });
    const actors = await open([Heavy]);
    const { id } = await actors.create(Heavy, { isSuspect: true });
    for (const turns of [1, 2]) {
      const dispatcher = await start(actors, { lease: '1s' });
      await until('it runs', () => seen.length === turns);
      dispatcher.abandon();
    }
    running.clear();
    const others = await Promise.all([1, 2, 3].map(() => actors.create(Heavy, {})));
    await start(actors, { lease: '1s' });
    const { lost } = await actors.waitFor(id);
    for (const other of others) await actors.waitFor(other);
    expect({ lost, alone: seen[2] }).toEqual({ lost: 0, alone: [id] });
    const reasons = (await actors.history(id)).map(({ reason }) => reason);
    expect(reasons).toEqual(['created', 'worker lost', 'worker lost', 'done']);
  });

  test('an actor that was lost three times is held with a page, until somebody resumes it', async () => {
    let [begun, isMended] = [0, false];
    const Poison = actor(fresh('Poison'), {
      initial: 'works',
      backoff: { kind: 'fixed', min: 1 },
      states: {
        works: state({
          run: async (a) => {
            begun += 1;
            if (!isMended) await aborted(a.signal);
            return a.done();
          },
        }),
      },
    });
    const actors = await open([Poison]);
    const { id } = await actors.create(Poison, {});
    for (const turns of [1, 2, 3]) {
      const dispatcher = await start(actors, { lease: '1s' });
      await until('it runs', () => begun === turns);
      dispatcher.abandon();
    }
    await start(actors, { lease: '1s' });
    const { held } = await actors.waitFor(id, { status: 'held' });
    expect(held).toBe('its process died or was suspended three times in a row');
    // The loss and the hold are two rows, and pages of one row each show both.
    const history = await actors.history(id);
    const paged = [];
    for (let page = history.slice(-1); page.length > 0; ) {
      paged.unshift(...page);
      page = await actors.history(id, { before: page[0]?.epoch, limit: 1 });
    }
    expect(paged).toEqual(history);
    expect((await actors.pages({ actor: id })).map(({ tag }) => tag)).toEqual([`actor-lost:${id}`]);
    isMended = true;
    await actors.resume(id);
    expect((await actors.waitFor(id)).lost).toBe(0);
    expect(await actors.pages({ actor: id })).toEqual([]);
  });
}
