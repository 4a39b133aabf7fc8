import { expect, test } from 'vitest';
import { type ActorDefinition, actor, type LooseFields, type Outcome, type Turn } from '../../../src/actor/index.ts';
import { InvalidInput } from '../../../src/base/errors.ts';
import { openScene } from '../scene.ts';

const CASES: Readonly<Record<string, readonly [fields: LooseFields, says: RegExp]>> = {
  'a Map': [{ a: { rates: new Map() } }, /fields\.a\.rates is a Map/],
  'a Set': [{ a: [new Set()] }, /fields\.a\[0\] is a Set/],
  NaN: [{ price: Number.NaN }, /fields\.price is NaN/],
  Infinity: [{ price: { net: Infinity } }, /fields\.price\.net is Infinity/],
  'a bigint': [{ n: 12n }, /fields\.n is 12n, a bigint/],
  'a Date': [{ lines: [{ at: new Date(0) }] }, /fields\.lines\[0\]\.at is a Date.*toISOString/],
  'an Error': [{ error: new Error('x') }, /fields\.error is an Error/],
};

function thing(run: (a: Turn<LooseFields, never, 'after'>) => Outcome<'after'>): ActorDefinition<LooseFields, never> {
  return actor('thing', {
    initial: 'only',
    backoff: { min: '1h' },
    states: (state) => ({ only: state({ to: ['after'], run }), after: state({ run: (a) => a.hibernate() }) }),
  });
}

for (const [name, [fields, says]] of Object.entries(CASES)) {
  test(`fields with ${name} are refused with the path, of a new actor and of a turn`, async () => {
    const Thing = thing((a) => a.to('after', fields));
    const { actors, one } = await openScene([Thing]);
    await expect(actors.create(Thing, fields)).rejects.toThrow(InvalidInput);
    await expect(actors.create(Thing, fields)).rejects.toThrow(says);
    expect(await one('select count(*)::int from pawl.actor')).toBe(0);
    const { id } = await actors.create(Thing, {});
    expect(await actors.work(id)).toMatchObject({ kind: 'failed' });
    expect((await actors.get(id)).error).toMatch(says);
  });
}

test('a text that looks like a time is one, and stays', async () => {
  const at = new Date(0).toISOString();
  const Thing = thing((a) => a.to('after', { at }));
  const { actors } = await openScene([Thing]);
  const one = await actors.create(Thing, { since: at });
  await actors.work(one);
  expect((await actors.get(one)).fields).toEqual({ since: at, at });
});

test('a body that forgets its return opens a page at the first turn, once, until the state is left', async () => {
  let isMended = false;
  const Thing = thing((a) => (isMended ? a.to('after') : (undefined as never)));
  const { actors } = await openScene([Thing]);
  const one = await actors.create(Thing, {});
  await actors.work(one);
  await actors.work(one);
  expect((await actors.get(one)).error).toMatch(
    /must return a\.to.*but gave nothing: one of its branches has no return/,
  );
  const [page, ...more] = await actors.pages({ actor: one });
  expect(more).toEqual([]);
  expect(page).toMatchObject({ tag: `actor-mistake:${one.id}`, severity: 'error', count: 1 });
  expect(page?.summary).toMatch(/fails in "only" until its program is mended/);
  isMended = true;
  await actors.work(one);
  expect(await actors.pages({ actor: one })).toEqual([]);
});

test('a failure of another kind opens no page', async () => {
  const Thing = thing(() => {
    throw new Error('the network is down');
  });
  const { actors } = await openScene([Thing]);
  const one = await actors.create(Thing, {});
  await actors.work(one);
  expect(await actors.pages()).toEqual([]);
});
