import { expect, test } from 'vitest';
import { actor, state } from '../../../src/actor/index.ts';
import { Conflict, NotFound, TimedOut } from '../../../src/base/errors.ts';
import { until } from '../../support/eventually.ts';
import { fresh, type OpenActors, start } from './open.ts';

/** Answers `double` and, at its third try, `hard`; reads `mute` and answers nothing; ends by `end`. Leaves other questions unread. */
function oracle() {
  return actor(fresh('Oracle'), {
    initial: 'open',
    backoff: { kind: 'fixed', min: 1 },
    states: {
      open: state({
        run: async (a) => {
          for (const message of await a.receive('double')) message.reply(Number(message.payload) * 2);
          for (const message of await a.receive('hard')) {
            message.reply(a.attempt);
            if (a.attempt < 3) throw new Error('not yet');
          }
          await a.receive('mute');
          const [end] = await a.receive('end');
          if (end === undefined) return a.hibernate();
          end.reply('bye');
          return a.done(end.isAsked);
        },
      }),
    },
  });
}

/** What is promised of `ask()` and `message.reply()`. */
export function questionContract(open: OpenActors): void {
  test('a question is answered by the commit of its turn, to each its own, and not by a turn that fails', async () => {
    const Oracle = oracle();
    const actors = await open([Oracle]);
    const { id } = await actors.create(Oracle, {});
    await start(actors);
    // More than a turn on DynamoDB takes at once.
    const asked = Array.from({ length: 17 }, (_, n) => n);
    expect(await Promise.all(asked.map((n) => actors.ask(id, 'double', n)))).toEqual(asked.map((n) => 2 * n));
    expect(await actors.ask(id, 'hard')).toBe(3);
    expect(await actors.ask(id, 'end')).toBe('bye');
    expect((await actors.waitFor(id)).result).toBe(true);
  });

  test('a question that no turn has read in time is taken back', async () => {
    const seen: unknown[] = [];
    const Late = actor(fresh('Late'), {
      initial: 'open',
      states: {
        open: state({
          run: async (a) => {
            for (const { payload } of await a.receive()) seen.push(payload);
            return a.hibernate();
          },
        }),
      },
    });
    const actors = await open([Late]);
    const { id } = await actors.create(Late, {});
    const unread = await actors.ask(id, 'early', 'asked', { wait: '50ms' }).catch((error: unknown) => error);
    expect(unread).toBeInstanceOf(TimedOut);
    expect(String(unread)).toMatch(/withdrawn, so no turn will read it/);
    await actors.send(id, 'early', 'sent');
    await start(actors);
    await until('a turn has read what was sent', () => seen.length > 0);
    expect(seen).toEqual(['sent']);
  });

  test('of a turn that has read a question which is taken back nothing is kept, and it is run again uncharged', async () => {
    const read: number[] = [];
    let goOn = (): void => {};
    const opened = new Promise<void>((resolve) => {
      goOn = resolve;
    });
    const Slow = actor(fresh('Slow'), {
      initial: 'open',
      states: {
        open: state({
          run: async (a) => {
            const questions = await a.receive('slow');
            read.push(questions.length);
            if (questions.length > 0) await opened;
            return a.hibernate(questions.length > 0 ? { isRead: true } : {});
          },
        }),
      },
    });
    const actors = await open([Slow]);
    const { id } = await actors.create(Slow, {});
    await start(actors);
    const over = new AbortController();
    const asking = actors.ask(id, 'slow', null, { signal: over.signal }).catch((error: unknown) => error);
    await until('a turn has read it', () => read.includes(1));
    const reason = new Error('the sender has given up');
    over.abort(reason);
    expect(await asking).toBe(reason);
    goOn();
    await until('another turn has found nothing', () => read.at(-1) === 0 && read.includes(1));
    await actors.waitFor(id, { status: 'hibernating' });
    expect(await actors.get(id)).toMatchObject({ fields: {}, attempt: 0 });
    expect((await actors.history(id)).map(({ reason: why }) => why)).toEqual(['created']);
  });

  test('a question is a conflict where so no turn can answer, and a reply to what was only sent does nothing', async () => {
    const Oracle = oracle();
    const actors = await open([Oracle]);
    const { id } = await actors.create(Oracle, {});
    await start(actors);
    await expect(actors.ask(id, 'mute')).rejects.toThrow(/a turn read "mute" of actor \d+ and gave no answer/);
    const left = actors.ask(id, 'nothing reads this').catch((error: unknown) => error);
    await until('it was asked', async () => (await actors.get(id)).messages > 0);
    await actors.send(id, 'end');
    expect(await left).toBeInstanceOf(Conflict);
    expect(String(await left)).toMatch(/the actor is final, and has not answered/);
    expect((await actors.get(id)).result).toBe(false);
    await expect(actors.ask(id, 'double')).rejects.toThrow(Conflict);
    await expect(actors.ask('987654321', 'double')).rejects.toThrow(NotFound);
  });
}
