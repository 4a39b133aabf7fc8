import { describe, expect, onTestFinished, test } from 'vitest';
import { type Actors, actor, createActors, state } from '../../../src/actor/index.ts';
import { postgres } from '../../../src/engine/postgres/index.ts';
import { meanwhile, SNAPSHOT_DEFAULTS, setDefaultIsolation } from '../../support/meanwhile.ts';
import { openScene } from '../scene.ts';

const Door = actor('door', {
  semaphores: ['destroy'],
  initial: 'open',
  always: { destroy: 'gone' },
  states: {
    open: state({ to: ['gone'], run: (a) => a.hibernate() }),
    gone: state({ run: (a) => a.done() }),
  },
});

const INSTANCES = 'update pawl.actor_instance set lost = lost';
const TYPES = 'update pawl.actor_type set version = version';
const PAGES = 'update pawl.actor_page set summary = summary';

interface Scene {
  readonly actors: Actors;
  readonly url: string;
  readonly id: string;
  readonly query: <Row>(sql: string) => Promise<Row[]>;
}

/** A door in a database with this default. */
async function open(isolation: (typeof SNAPSHOT_DEFAULTS)[number]): Promise<Scene> {
  const { url, query, actors: before } = await openScene([Door], { max: 4 });
  const { id } = await before.create(Door, {}, { key: 'front' });
  await setDefaultIsolation(url, isolation);
  const engine = postgres(url, { max: 4 });
  onTestFinished(() => engine.stop());
  return { actors: createActors(engine, [Door]), url, id, query };
}

for (const isolation of SNAPSHOT_DEFAULTS) {
  describe(`with ${isolation} as the default of the database, what a transaction that ends meanwhile has changed stops no`, () => {
    test('pause and resume of an actor', async () => {
      const { actors, url, id } = await open(isolation);
      await meanwhile(url, INSTANCES, () => actors.pause(id));
      expect((await actors.get(id)).status).toBe('paused');
      await meanwhile(url, INSTANCES, () => actors.resume(id));
      expect((await actors.get(id)).status).not.toBe('paused');
    });

    test('pause and resume of a type', async () => {
      const { actors, url, id } = await open(isolation);
      await meanwhile(url, TYPES, () => actors.pause({ type: 'door' }));
      expect((await actors.get(id)).status).toBe('paused');
      await meanwhile(url, TYPES, () => actors.resume({ type: 'door' }));
      expect((await actors.get(id)).status).not.toBe('paused');
    });

    test('pause of a state, nor its resume, which releases an actor that another transaction holds', async () => {
      const { actors, url, id, query } = await open(isolation);
      const place = { type: 'door', state: 'open' };
      const pausing = `insert into pawl.actor_paused_state (type, state) select id, 'open' from pawl.actor_type`;
      await meanwhile(url, pausing, () => actors.pause(place));
      const holding = `select from pawl.actor_paused_state for share; update pawl.actor_instance set held = 'the state is paused'`;
      await meanwhile(url, holding, () => actors.resume(place));
      expect(await query('select held from pawl.actor_instance')).toEqual([{ held: null }]);
      expect((await actors.get(id)).status).not.toBe('paused');
    });

    test('retry, move and destroy', async () => {
      const { actors, url, id } = await open(isolation);
      expect(await meanwhile(url, INSTANCES, () => actors.retry(id))).toBe(true);
      expect(await meanwhile(url, INSTANCES, () => actors.destroy(id))).toBe(true);
      await meanwhile(url, INSTANCES, () => actors.move(id, 'gone', {}, { reason: 'for a test' }));
      expect((await actors.get(id)).state).toBe('gone');
    });

    test('create of a key that another transaction creates', async () => {
      const { actors, url, query } = await open(isolation);
      const creating = `select pawl.actor_create('{"type":"door","key":"back","fields":{}}'::jsonb)`;
      const { created } = await meanwhile(url, creating, () => actors.create(Door, {}, { key: 'back' }));
      expect(created).toBe(false);
      expect(await query(`select from pawl.actor_instance where key = 'back'`)).toHaveLength(1);
    });

    test('page, its acknowledgement and its resolution', async () => {
      const { actors, url } = await open(isolation);
      const { id } = await actors.page({ tag: 'fire', summary: 'it burns', severity: 'warning' });
      await meanwhile(url, PAGES, () => actors.page({ tag: 'fire', summary: 'it burns more', severity: 'critical' }));
      expect(await meanwhile(url, PAGES, () => actors.ackPage(id, 'me'))).toBe(true);
      expect(await meanwhile(url, PAGES, () => actors.resolvePage({ tag: 'fire' }))).toBe(true);
      const opening = `select pawl.page_open('{"tag":"flood","summary":"wet","severity":3}')`;
      expect(await meanwhile(url, opening, () => actors.page({ tag: 'flood', summary: 'wet' }))).toBeDefined();
    });
  });
}
