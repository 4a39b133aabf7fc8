import { expect, test } from 'vitest';
import { type Actors, actor, type PageNotice, state } from '../../../src/actor/index.ts';
import { Conflict, InvalidInput, NotFound } from '../../../src/base/errors.ts';
import { eventually, until } from '../../support/eventually.ts';
import { fresh, type OpenActors, start } from './open.ts';

/** Told by the channel of a dispatcher: `kind tag`. */
async function startTelling(actors: Actors): Promise<PageNotice[]> {
  const told: PageNotice[] = [];
  const deliver = (notice: PageNotice): Promise<void> => Promise.resolve(void told.push(notice));
  await start(actors, { channels: [{ name: fresh('channel'), deliver }] });
  return told;
}

/** Leads on at `go`; stays too long in `slow`. */
function slowOne(name: string) {
  return actor(name, {
    semaphores: ['go', 'page', 'over'],
    initial: 'waits',
    backoff: { kind: 'fixed', min: 1 },
    states: {
      waits: state({
        to: ['slow'],
        run: (a) => {
          if (a.take('page'))
            a.page({ tag: `own:${a.id}`, summary: `asked by turn ${a.attempt}`, severity: 'warning' });
          return a.take('go') ? a.to('slow') : a.hibernate();
        },
      }),
      slow: state({
        to: ['waits'],
        deadline: '100ms',
        run: (a) => {
          if (a.take('over')) return a.done();
          return a.take('go') ? a.to('waits') : a.hibernate();
        },
      }),
    },
  });
}

const tagsOf = async (actors: Actors, id: string): Promise<string[]> =>
  (await actors.pages({ actor: id })).map(({ tag }) => tag);

/** What is promised of pages, deadlines, and actors that no program can run. */
export function pageContract(open: OpenActors): void {
  test('one page is open for each tag: it counts, keeps its details, its severity rises, and its root silences others', async () => {
    const actors = await open([slowOne(fresh('Slow'))]);
    const told = await startTelling(actors);
    const tag = fresh('disk');
    const first = await actors.page({ tag, summary: 'full', severity: 'warning', details: { n: 1 } });
    expect(first.news).toBe('opened');
    expect(await actors.page({ tag, summary: 'fuller', severity: 'info' })).toEqual({ id: first.id, news: 'none' });
    expect(await actors.page({ tag, summary: 'fullest', severity: 'critical' })).toMatchObject({ news: 'escalated' });
    const hidden = await actors.page({ tag: `${tag}:behind`, summary: 'late', root: tag });
    const page = await actors.getPage(first.id);
    expect(page).toMatchObject({
      tag,
      count: 3,
      severity: 'critical',
      summary: 'fullest',
      details: { n: 1 },
      status: 'open',
    });
    expect(await actors.getPage(hidden.id)).toMatchObject({ suppressed: true });
    expect(await actors.ackPage(first.id, 'ada')).toBe(true);
    expect(await actors.getPage(first.id)).toMatchObject({ status: 'acked', ackedBy: 'ada' });
    expect(await actors.resolvePage({ tag })).toBe(true);
    expect(await actors.resolvePage({ id: first.id })).toBe(false);
    expect(await actors.getPage(first.id)).toMatchObject({ status: 'resolved' });
    // Its cause is over, and it is not: now somebody has to know.
    expect(await actors.getPage(hidden.id)).toMatchObject({ suppressed: false });
    const mine = (): string[] => told.filter((one) => one.tag.startsWith(tag)).map((one) => `${one.kind} ${one.tag}`);
    await eventually(() =>
      expect(mine()).toEqual([`opened ${tag}`, `escalated ${tag}`, `resolved ${tag}`, `opened ${tag}:behind`]),
    );
    await actors.resolvePage({ tag: `${tag}:behind` });
    await expect(actors.getPage('98765432')).rejects.toThrow(NotFound);
  });

  test('a page is resolved by its id or its tag, and anything else is refused', async () => {
    const actors = await open([slowOne(fresh('Slow'))]);
    const tag = fresh('kept');
    const { id } = await actors.page({ tag, summary: 'open' });
    for (const which of [{}, { id, tag }, { tag: 5 }, { tag: '' }, { tag: 'a\u0000' }, 'kept', undefined]) {
      await expect(actors.resolvePage(which as never)).rejects.toThrow(InvalidInput);
    }
    expect(await actors.getPage(id)).toMatchObject({ status: 'open' });
    expect(await actors.resolvePage({ id })).toBe(true);
  });

  test('a turn opens a page with its commit, and the end of the actor resolves it', async () => {
    const Slow = slowOne(fresh('Slow'));
    const actors = await open([Slow]);
    const { id } = await actors.create(Slow, {});
    await start(actors);
    await actors.incr(id, 'page');
    await eventually(async () => expect(await tagsOf(actors, id)).toEqual([`own:${id}`]));
    await actors.incr(id, 'go');
    await actors.incr(id, 'over');
    await actors.waitFor(id);
    await eventually(async () => expect(await tagsOf(actors, id)).toEqual([]));
    expect((await actors.pages({ actor: id, resolved: true }))[0]).toMatchObject({ status: 'resolved', count: 1 });
  });

  test('a state that lasts longer than its deadline opens a page, and leaving it resolves that', async () => {
    const Slow = slowOne(fresh('Slow'));
    const actors = await open([Slow]);
    const { id } = await actors.create(Slow, {});
    await actors.incr(id, 'go');
    await actors.work(id);
    const slow = await actors.get(id);
    expect(Number(slow.deadlineAt) - Number(slow.enteredAt)).toBe(100);
    await until('it is over', async () => ((await actors.get(id)).deadlineAt ?? 0) < new Date());
    await start(actors);
    await eventually(async () => expect(await tagsOf(actors, id)).toEqual([`actor-deadline:${id}`]));
    const [page] = await actors.pages({ actor: id });
    expect(page?.summary).toMatch(/^Slow\d+ \d+ is in "slow" since \S+Z, longer than its deadline$/);
    expect((await actors.get(id)).deadlineAt).toBeNull();
    await actors.incr(id, 'go');
    await actors.waitFor(id, { state: 'waits' });
    await eventually(async () => expect(await tagsOf(actors, id)).toEqual([]));
  });

  test('a mistake of the program opens a page at its first failure, which the next transition resolves', async () => {
    let isMended = false;
    const Broken = actor(fresh('Broken'), {
      initial: 'works',
      backoff: { kind: 'fixed', min: '20ms' },
      states: { works: state({ run: (a) => (isMended ? a.done() : (undefined as never)) }) },
    });
    const actors = await open([Broken]);
    const { id } = await actors.create(Broken, {});
    await start(actors);
    await eventually(async () => expect(await tagsOf(actors, id)).toEqual([`actor-mistake:${id}`]));
    isMended = true;
    await actors.waitFor(id);
    await eventually(async () => expect(await tagsOf(actors, id)).toEqual([]));
  });

  test('an actor in a state that no program knows is held with a page, until one is started that does', async () => {
    const name = fresh('Grown');
    const run = (): never => {
      throw new Error('never run');
    };
    const Old = actor(name, { initial: 'first', states: { first: state({ run }) } });
    const Grown = actor(name, {
      initial: 'next',
      states: { first: state({ run }), next: state({ run: (a) => a.done('known') }) },
    });
    const newer = await open([Grown]);
    const { id } = await newer.create(Grown, {});
    const other = await newer.create(Grown, {});
    await newer.pause(other);
    const older = await open([Old], newer);
    await start(older);
    const { held } = await older.waitFor(id, { status: 'held' });
    expect(held).toMatch(/is in state "next", which no running program knows/);
    const [page] = await older.pages({ actor: id });
    expect(page).toMatchObject({ severity: 'error', summary: held });
    const refused = older.retry(id);
    await expect(refused).rejects.toThrow(Conflict);
    await expect(refused).rejects.toThrow('start a program that knows its state, or move it to another one');
    await older.pause(id);
    await older.resume(id);
    await older.resume(id);
    expect((await older.get(id)).status).toBe('held');
    const health = await older.health();
    expect(health.held).toContainEqual({ actor: id, reason: held });
    expect(health.openPages).toBeGreaterThan(0);
    expect((await older.history(id)).map(({ reason }) => reason)).toEqual(['created', 'held']);
    await start(newer);
    expect((await newer.waitFor(id)).result).toBe('known');
    await eventually(async () => expect(await tagsOf(older, id)).toEqual([]));
    // While one that knows the state lives, the older program gives such actors back.
    await newer.resume(other);
    expect((await newer.waitFor(other)).result).toBe('known');
    expect((await newer.history(other)).map(({ reason }) => reason)).not.toContain('held');
  });
}
