import { expect, test } from 'vitest';
import { actor, state } from '../../../src/actor/index.ts';
import { eventually } from '../../support/eventually.ts';
import { fresh, type OpenActors, start } from './open.ts';

/** Goes from one state to the next at each `go`, and counts what is raised on its way. */
function walker() {
  return actor(fresh('Walker'), {
    semaphores: ['go', 'more'],
    initial: 'first',
    states: {
      first: state({ to: ['second'], run: (a) => (a.take('go') ? a.to('second') : a.hibernate()) }),
      second: state({
        run: (a) => {
          const n = a.val('more');
          return a.take('go') ? a.done(n) : a.hibernate();
        },
      }),
    },
  });
}

/** What is promised of pauses of single states, and of counts. */
export function pauseContract(open: OpenActors): void {
  test('in a paused state no turn begins, others go on, and nothing that comes meanwhile is lost', async () => {
    const Walker = walker();
    const actors = await open([Walker]);
    const { id } = await actors.create(Walker, {});
    await start(actors);
    await actors.waitFor(id, { status: 'hibernating' });
    await actors.pause({ type: Walker.name, state: 'second' });
    await actors.incr(id, 'go');
    await actors.waitFor(id, { state: 'second' });
    await actors.waitFor(id, { status: 'paused' });
    await actors.incr(id, 'more', { n: 3 });
    await actors.incr(id, 'go');
    const other = await actors.create(Walker, {});
    await actors.waitFor(other, { status: 'hibernating' });
    const { statePausedAt, held } = await actors.get(id);
    expect({ isPaused: statePausedAt !== null, held }).toEqual({ isPaused: true, held: 'the state is paused' });
    expect((await actors.explain(id)).status).toBe('paused');
    const known = (await actors.types()).find(({ name }) => name === Walker.name);
    expect(known).toMatchObject({ paused: false, pausedStates: ['second'] });
    expect(await actors.diagram(Walker.name)).toMatch(/first[^\n]*1[^]*second[^\n]*1/);
    await actors.resume({ type: Walker.name, state: 'second' });
    expect((await actors.waitFor(id)).result).toBe(3);
    await eventually(async () => expect(await actors.diagram(Walker.name)).not.toMatch(/second[^\n]*1/));
  });

  test('health names a type whose actors are due without a worker, unless it is paused', async () => {
    const Walker = walker();
    const actors = await open([Walker]);
    const unattended = async (): Promise<boolean> => (await actors.health()).unattended.includes(Walker.name);
    const { id } = await actors.create(Walker, {});
    expect(await unattended()).toBe(true);
    await actors.pause({ type: Walker.name });
    await eventually(async () => expect(await unattended()).toBe(false));
    await actors.resume({ type: Walker.name });
    await start(actors);
    await actors.waitFor(id, { status: 'hibernating' });
    expect(await unattended()).toBe(false);
  });
}
