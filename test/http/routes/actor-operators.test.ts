import * as v from 'valibot';
import { expect, onTestFinished, test } from 'vitest';
import { type Actors, actor, createActors } from '../../../src/actor/index.ts';
import { postgres } from '../../../src/engine/postgres/index.ts';
import { makeHouse } from '../house.ts';

const Desk = actor('desk', {
  fields: v.object({ floor: v.number(), secret: v.optional(v.string()) }),
  initial: 'open',
  index: ['floor'],
  backoff: { min: '1h' },
  states: (state) => ({
    open: state({
      to: ['closed'],
      run: async (a) => {
        for (const message of await a.receive('where')) message.reply({ floor: a.fields.floor, secret: 'hidden' });
        return a.hibernate();
      },
    }),
    closed: state({ run: (a) => a.done() }),
  }),
});

async function open(): Promise<{ house: Awaited<ReturnType<typeof makeHouse>>; actors: Actors; id: string }> {
  const house = await makeHouse();
  onTestFinished(() => house.stop());
  const engine = postgres(house.url);
  const actors = createActors(engine, [Desk]);
  const dispatcher = actors.run({ poll: '50ms' });
  onTestFinished(async () => {
    await dispatcher.stop();
    await engine.stop();
  });
  const { id } = await actors.create(Desk, { floor: 3 });
  return { house, actors, id };
}

test('an actor answers a question over HTTP, and a caller without the right to payloads does not see it', async () => {
  const { house, id } = await open();
  const { ask } = house.open();
  const answer = await ask(`/api/v1/actors/${id}/ask`, { method: 'POST', body: { name: 'where', wait: '10s' } });
  expect(answer.status).toBe(200);
  expect(answer.body).toEqual({ answer: { floor: 3, secret: 'hidden' }, payloadHidden: false });
  const blind = house.open({ auth: { authorize: () => ({ name: 'x', permissions: ['view', 'actor:signal'] }) } });
  const headers = { 'sec-fetch-site': 'same-origin' };
  const body = { name: 'where', wait: '10s' };
  const hidden = await blind.ask(`/api/v1/actors/${id}/ask`, { method: 'POST', headers, body });
  expect(hidden.status).toBe(200);
  expect(hidden.text).not.toContain('"hidden"');
  expect(hidden.body).toMatchObject({ payloadHidden: true });
  const late = await ask(`/api/v1/actors/${id}/ask`, { method: 'POST', body: { name: 'what?', wait: '50ms' } });
  expect(late.status).toBe(504);
});

test('a move over HTTP is in the history of the actor and in the audit, and its fields are checked where the program is', async () => {
  const { house, actors, id } = await open();
  const { ask } = house.open({ actors });
  const move = (body: object) => ask(`/api/v1/actors/${id}/move`, { method: 'POST', body });
  expect((await move({ state: 'open', patch: { floor: 'up' }, reason: 'a test' })).status).toBe(400);
  expect((await move({ state: 'open', patch: [1], reason: 'a test' })).status).toBe(400);
  expect((await move({ state: 'nowhere', reason: 'a test' })).status).toBe(400);
  expect((await move({ state: 'open', patch: { floor: 4, secret: 'sesame' }, reason: 'moved house' })).status).toBe(
    200,
  );
  expect((await actors.get(id)).fields).toEqual({ floor: 4, secret: 'sesame' });
  expect((await actors.history(id)).map(({ reason }) => reason)).toContain('moved: moved house');
  const audit = JSON.stringify((await ask('/api/v1/audit')).body);
  expect(audit).toContain(`actor ${id} to \\"open\\": moved house`);
  expect(audit).not.toContain('sesame');
  await actors.waitFor(id, { status: 'hibernating' });
  const again = await ask(`/api/v1/actors/${id}/retry`, { method: 'POST', body: {} });
  expect(again.body).toEqual({ retried: true });
});

test('actors are listed by their fields over HTTP, by a caller that may search', async () => {
  const { house, id } = await open();
  const { ask } = house.open();
  const list = (where: string) => ask(`/api/v1/actors?type=desk&where=${encodeURIComponent(where)}`);
  expect((await list('{"floor":3}')).body).toMatchObject({ items: [{ id }] });
  expect((await list('{"floor":4}')).body).toMatchObject({ items: [] });
  expect((await list('{"secret":"x"}')).status).toBe(400);
  for (const no of ['floor=3', 'null', '5', 'true', '[]']) expect([no, (await list(no)).status]).toEqual([no, 400]);
  const blind = house.open({ auth: { authorize: () => ({ name: 'x', permissions: ['view'] }) } });
  expect((await blind.ask('/api/v1/actors?type=desk&where=%7B%22floor%22%3A3%7D')).status).toBe(403);
});
