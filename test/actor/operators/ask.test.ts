import * as v from 'valibot';
import { describe, expect, onTestFinished, test } from 'vitest';
import {
  type ActorDefinition,
  actor,
  createActorAdmin,
  type LooseFields,
  type Outcome,
  type Turn,
} from '../../../src/actor/index.ts';
import { Conflict, InvalidInput, NotFound, TimedOut } from '../../../src/base/errors.ts';
import { faults } from '../../../src/base/fault.ts';
import { postgres } from '../../../src/engine/postgres/index.ts';
import { until } from '../../support/eventually.ts';
import { recordLog } from '../../support/log.ts';
import { spawnChild } from '../../support/process.ts';
import { startProxy } from '../../support/proxy.ts';
import { type ActorScene, openScene } from '../scene.ts';

type Body = (a: Turn<LooseFields, never, 'other'>) => Outcome<never> | Promise<Outcome<never>>;

function oracle(run: Body): ActorDefinition<LooseFields, never> {
  return actor('oracle', {
    initial: 'only',
    backoff: { min: '50ms' },
    states: (state) => ({ only: state({ run }), other: state({ run }) }),
  });
}

async function open(run: Body): Promise<ActorScene & { id: string }> {
  const Oracle = oracle(run);
  const scene = await openScene([Oracle]);
  const { id } = await scene.actors.create(Oracle, {});
  return { ...scene, id };
}

const isEmpty = (scene: ActorScene): Promise<boolean> =>
  scene.one('select not exists (select from pawl.actor_question) and not exists (select from pawl.actor_message)');

const doubles: Body = async (a) => {
  for (const message of await a.receive('double')) message.reply(Number(message.payload) * 2);
  return a.hibernate();
};

describe('actors.ask()', () => {
  test('gives what the body replies, to each its own, and leaves nothing', async () => {
    const scene = await open(doubles);
    await scene.run();
    // No program is needed to ask.
    const admin = createActorAdmin(scene.engine);
    const answers = await Promise.all(Array.from({ length: 50 }, (_, n) => admin.ask(scene.id, 'double', n)));
    expect(answers).toEqual(Array.from({ length: 50 }, (_, n) => 2 * n));
    await until('nothing is left', () => isEmpty(scene));
  });

  // Invariant A31.
  test('gives up on a question while the turn that has read it is committed, and neither ends the other', async () => {
    let goOn = (): void => {};
    const held = new Promise<void>((resolve) => {
      goOn = resolve;
    });
    // The message is removed, and the answer is not written.
    onTestFinished(faults.arm('actor.between_effects', () => held, { occurrence: 2 }));
    const scene = await open(doubles);
    await scene.run();
    const asking = scene.actors.ask(scene.id, 'double', 1, { wait: '500ms' }).catch((error: unknown) => error);
    await until('it waits for the turn', () =>
      scene.one(`select count(*) = 1 from pg_stat_activity
        where datname = current_database() and wait_event_type = 'Lock' and query like '%actor_end_question%'`),
    );
    goOn();
    expect(await asking).toBeInstanceOf(TimedOut);
    await until('the turn is committed', async () => (await scene.actors.get(scene.id)).status === 'hibernating');
    expect(await scene.actors.get(scene.id)).toMatchObject({ attempt: 0, error: null });
  });

  test('learns that its time is over when the answer came too late, and not that there is none', async () => {
    let goOn = (): void => {};
    const held = new Promise<void>((resolve) => {
      goOn = resolve;
    });
    let isRead = false;
    const scene = await open(async (a) => {
      for (const message of await a.receive('late')) {
        isRead = true;
        await held;
        message.reply(1);
      }
      return a.hibernate();
    });
    await scene.run();
    // As a process asks that stands still after that.
    const { message } = JSON.parse(
      await scene.one<string>('select pawl.actor_ask($1)', [
        JSON.stringify([{ actor: Number(scene.id), name: 'late', channel: 'none', wait: 1000 }, null]),
      ]),
    ) as { message: string };
    await until('it is read', () => isRead);
    await until('its time is over', () => scene.one('select expires_at < clock_timestamp() from pawl.actor_question'));
    goOn();
    await until('the turn is committed', async () => (await scene.actors.get(scene.id)).status === 'hibernating');
    expect(await scene.one('select pawl.actor_look_for_answer($1)', [message])).toMatchObject({ state: 'late' });
  });

  // Invariant A31.
  test('is answered by the commit of the turn, and not by one that fails', async () => {
    const values: number[] = [];
    const scene = await open(async (a) => {
      for (const message of await a.receive('next')) {
        values.push(a.attempt);
        message.reply(a.attempt);
        if (a.attempt < 3) throw new Error('not yet');
      }
      return a.hibernate();
    });
    await scene.run();
    expect(await scene.actors.ask(scene.id, 'next')).toBe(3);
    expect(values).toEqual([1, 2, 3]);
  });

  test('commits the answer with all that the turn asks for, in a transaction of the body as well', async () => {
    const Held = actor('held', {
      initial: 'only',
      states: (state) => ({
        only: state({
          hold: 'transaction',
          run: async (a) => {
            const [message] = await a.receive('count');
            message?.reply({ n: a.fields['n'] + 1 });
            return message === undefined ? a.hibernate() : a.hibernate({ n: a.fields['n'] + 1 });
          },
        }),
      }),
    });
    const { actors, run } = await openScene([Held]);
    const one = await actors.create(Held, { n: 0 });
    await run();
    expect(await actors.ask(one, 'count')).toEqual({ n: 1 });
    expect((await actors.get(one)).fields).toEqual({ n: 1 });
  });

  test('taken back while a turn has it, leaves nothing of a transaction of the body, which runs again uncharged', async () => {
    const read: number[] = [];
    let goOn = (): void => {};
    const opened = new Promise<void>((resolve) => {
      goOn = resolve;
    });
    const Held = actor('held', {
      initial: 'only',
      states: (state) => ({
        only: state({
          hold: 'transaction',
          run: async (a) => {
            const questions = await a.receive('slow');
            read.push(questions.length);
            if (questions.length > 0) await opened;
            return a.hibernate(questions.length > 0 ? { isRead: true } : {});
          },
        }),
      }),
    });
    const { actors, run } = await openScene([Held]);
    const one = await actors.create(Held, {});
    await run();
    const over = new AbortController();
    const asking = actors.ask(one, 'slow', null, { signal: over.signal }).catch((error: unknown) => error);
    await until('a turn has read it', () => read.includes(1));
    over.abort(new Error('the user has left'));
    expect(await asking).toEqual(new Error('the user has left'));
    goOn();
    await until('another turn has found nothing', () => read.at(-1) === 0 && read.includes(1));
    await actors.waitFor(one, { status: 'hibernating' });
    expect(await actors.get(one)).toMatchObject({ fields: {}, attempt: 0 });
    expect((await actors.history(one.id)).map(({ reason }) => reason)).toEqual(['created']);
  });

  test('times out with what became of the message: not read, and taken back, or read by a turn', async () => {
    const seen: string[] = [];
    const slow = new Promise<void>(() => {});
    const scene = await open(async (a) => {
      const messages = await a.receive();
      seen.push(...messages.map(({ name }) => name));
      if (messages.length > 0) await slow;
      return a.hibernate();
    });
    const unread = await scene.actors.ask(scene.id, 'early', null, { wait: '100ms' }).catch((error: unknown) => error);
    expect(unread).toBeInstanceOf(TimedOut);
    expect(String(unread)).toMatch(/withdrawn, so no turn will read it/);
    expect(await isEmpty(scene)).toBe(true);
    await scene.run();
    const read = scene.actors.ask(scene.id, 'late', null, { wait: '4s' }).catch((error: unknown) => error);
    await until('a turn has read it', () => seen.includes('late'));
    // Its time is over in the database, too: the turn that has it has not ended.
    expect(await read).toBeInstanceOf(TimedOut);
    expect(seen).toEqual(['late']);
    expect(await isEmpty(scene)).toBe(true);
  });

  test('ends with the reason of its signal, and takes the message back', async () => {
    const scene = await open(doubles);
    const stop = new AbortController();
    const asked = scene.actors.ask(scene.id, 'double', 1, { signal: stop.signal }).catch((error: unknown) => error);
    await until('it was asked', () => scene.one('select exists (select from pawl.actor_question)'));
    stop.abort(new Error('the user has left'));
    expect(await asked).toEqual(new Error('the user has left'));
    expect(await isEmpty(scene)).toBe(true);
  });

  test('is a conflict where so no turn can answer: the actor is final, becomes it, or reads without an answer', async () => {
    const scene = await open(async (a) => {
      const [bye] = await a.receive('bye');
      if (bye !== undefined) return a.done();
      if ((await a.receive('end')).length > 0) return a.done();
      await a.receive('mute');
      return a.hibernate();
    });
    await scene.run();
    await expect(scene.actors.ask(scene.id, 'mute')).rejects.toThrow(
      /a turn read "mute" of actor \d+ and gave no answer/,
    );
    const left = scene.actors.ask(scene.id, 'nothing reads this').catch((error: unknown) => error);
    await until('it was asked', () => scene.one('select exists (select from pawl.actor_question)'));
    await scene.actors.send(scene.id, 'bye');
    expect(await left).toBeInstanceOf(Conflict);
    expect(String(await left)).toMatch(/the actor is final, and has not answered/);
    await expect(scene.actors.ask(scene.id, 'double')).rejects.toThrow(Conflict);
    await expect(scene.actors.ask('987654', 'double')).rejects.toThrow(NotFound);
    await until('nothing is left', () => isEmpty(scene));
  });

  test('is answered though every notification is lost', async () => {
    const Oracle = oracle(doubles);
    const scene = await openScene([Oracle], { listen: false });
    const { id } = await scene.actors.create(Oracle, {});
    await scene.run();
    expect(await scene.actors.ask(id, 'double', 4)).toBe(8);
  });

  test('survives the connections that are lost meanwhile', async () => {
    const scene = await open(doubles);
    const asked = scene.actors.ask(scene.id, 'double', 5);
    await until('it was asked', () => scene.one('select exists (select from pawl.actor_question)'));
    await scene.query(
      'select pg_terminate_backend(pid) from pg_stat_activity where datname = current_database() and pid <> pg_backend_pid()',
    );
    await scene.run();
    expect(await asked).toBe(10);
  });

  // Invariant A31.
  test('has its answer though the connection that was to bring it is lost', async () => {
    const scene = await open(doubles);
    await scene.run();
    const proxy = await startProxy(scene.url);
    onTestFinished(() => proxy.stop());
    await using engine = postgres(proxy.url, { logger: recordLog() });
    const admin = createActorAdmin(engine);
    await admin.ask(scene.id, 'double', 1);
    proxy.loseAnswerTo('actor.look_for_answer', 1);
    expect(await admin.ask(scene.id, 'double', 5)).toBe(10);
    expect(proxy.lost).toBe(1);
  });

  // Invariant A31.
  test('whose process is killed leaves nothing once its time is over', async () => {
    const scene = await open((a) => a.hibernate());
    const child = spawnChild('actor/operators/asker.child.ts', [], { URL: scene.url, ACTOR: scene.id });
    await until('it was asked', () => scene.one('select exists (select from pawl.actor_question)'));
    await child.kill();
    await scene.query(`update pawl.actor_question set expires_at = expires_at - interval '2 h'`);
    const seen: number[] = [];
    const Reader = oracle(async (a) => {
      seen.push((await a.receive()).length);
      return a.hibernate();
    });
    const { actors } = await openScene([Reader], { url: scene.url });
    await actors.work(scene.id);
    expect(seen).toEqual([0]);
    expect(await isEmpty(scene)).toBe(false);
    await scene.query('select pawl.actor_prune(1000)');
    expect(await isEmpty(scene)).toBe(true);
  });

  test('does not mind a reply to a message that was only sent, and takes the last of several', async () => {
    const scene = await open(async (a) => {
      for (const message of await a.receive()) {
        message.reply('first');
        message.reply({ asked: message.isAsked });
      }
      return a.hibernate();
    });
    await scene.run();
    await scene.actors.send(scene.id, 'hello');
    expect(await scene.actors.ask(scene.id, 'hello')).toEqual({ asked: true });
    await until('nothing is left', () => isEmpty(scene));
  });

  test('refuses a name, a wait and values that are none, and an answer that its schema does not take', async () => {
    const errors: string[] = [];
    const scene = await open(async (a) => {
      for (const message of await a.receive('double')) {
        try {
          message.reply({ n: 1n });
        } catch (error) {
          errors.push(String(error));
        }
        message.reply('text');
      }
      return a.hibernate();
    });
    await scene.run();
    const { actors, id } = scene;
    await expect(actors.ask(id, '')).rejects.toThrow(InvalidInput);
    await expect(actors.ask(id, 'double', 1n)).rejects.toThrow(/bigint/);
    await expect(actors.ask(id, 'double', 1, { wait: '2h' })).rejects.toThrow(/wait/);
    await expect(actors.ask(id, 'double', 1, { wiat: '2s' } as never)).rejects.toThrow(/wait/);
    await expect(actors.ask(id, 'double', 1, { schema: v.number() })).rejects.toThrow(/the answer to "double"/);
    expect(errors[0]).toMatch(/the answer to "double".*bigint/);
  });
});
