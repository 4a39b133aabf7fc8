import { mkdtemp, readFile, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { expect, onTestFinished, test } from 'vitest';
import { type Actors, actor, createActors } from '../../../src/actor/index.ts';
import { postgres } from '../../../src/engine/postgres/index.ts';
import { freshDatabase } from '../../support/database.ts';
import { until } from '../../support/eventually.ts';
import { pawl, startPawl } from '../pawl.ts';
import { warmPawl } from '../warm-pawl.ts';

const Light = actor('light', {
  semaphores: ['press', 'destroy'],
  initial: 'off',
  always: { destroy: 'broken' },
  states: (state) => ({
    off: state({ to: ['on'], run: (a) => (a.take('press') ? a.to('on') : a.hibernate()) }),
    on: state({ to: ['off'], run: (a) => (a.take('press') ? a.to('off') : a.hibernate()) }),
    broken: state({ run: (a) => a.done() }),
  }),
});

/** The same in a config file, as a user would write it. */
const CONFIG = `
import { actor, createActors, state } from '${new URL('../../../dist/actor/index.js', import.meta.url).href}';
const Light = actor('light', {
  semaphores: ['press', 'destroy'], initial: 'off', always: { destroy: 'broken' },
  states: {
    off: state({ to: ['on'], run: (a) => (a.take('press') ? a.to('on') : a.hibernate()) }),
    on: state({ to: ['off'], run: (a) => (a.take('press') ? a.to('off') : a.hibernate()) }),
    broken: state({ run: (a) => a.done() }),
  },
});
export default ({ engine }) => ({ actors: createActors(engine, [Light]) });
`;

async function scene(): Promise<{ url: string; actors: Actors; config: string; folder: string; id: string }> {
  const { url } = await freshDatabase();
  const engine = postgres(url);
  const folder = await mkdtemp(join(tmpdir(), 'pawl-test-actor-'));
  onTestFinished(async () => {
    await engine.stop();
    await rm(folder, { recursive: true, force: true });
  });
  const config = join(folder, 'lights.mjs');
  await writeFile(config, CONFIG);
  const actors = createActors(engine, [Light]);
  const { id } = await actors.create(Light, { room: 'hall' });
  return { url, actors, config, folder, id };
}

test('actors are listed, shown and explained', async () => {
  const { url, id } = await scene();
  expect((await warmPawl(['actor', 'list', '-q'], { url })).stdout).toBe(`${id}\n`);
  const shown = await warmPawl(['actor', 'show', id, '-o', 'json'], { url });
  expect(JSON.parse(shown.stdout)).toMatchObject({ id, type: 'light', state: 'off', fields: { room: 'hall' } });
  expect((await warmPawl(['actor', 'explain', id], { url })).stdout).toMatch(/no worker of its type lives/);
  expect((await warmPawl(['actor', 'history', id, '-o', 'jsonl'], { url })).stdout).toMatch(/"reason":"created"/);
  const cut = await warmPawl(['actor', 'history', id, '--limit', '1'], { url });
  expect(cut.stderr).toMatch(/there may be more: add --before 0/);
  expect((await warmPawl(['actor', 'list', '--before', id, '-q'], { url })).stdout).toBe('');
  expect((await warmPawl(['actor', 'diagram', 'light'], { url })).stdout).toMatch(/stateDiagram-v2[^]*off --> on/);
  expect((await warmPawl(['actor', 'diagram', 'light', '--svg'], { url })).stdout).toMatch(/^<svg/);
  expect(await warmPawl(['actor', 'show', '4711'], { url })).toMatchObject({ code: 4 });
  expect(await warmPawl(['actor', 'list', '--status', 'tired'], { url })).toMatchObject({ code: 2 });
  const missing = await warmPawl(['actor', 'list', '--type', 'lihgt'], { url });
  expect(missing).toMatchObject({ code: 4, stdout: '' });
  expect(missing.stderr).toMatch(/no actor type "lihgt"; did you mean "light"\?\nnext: +pawl actor list/);
  expect((await warmPawl(['actor', 'list', '--state', 'onn'], { url })).stderr).toMatch(
    /no state "onn"; did you mean "on"/,
  );
  expect((await warmPawl(['actor', 'incr', id, 'pres'], { url })).stderr).toMatch(
    /of light "pres"; did you mean "press"/,
  );
});

test('semaphores are raised, turns run by hand, actors paused and destroyed', async () => {
  const { url, id, config, actors } = await scene();
  expect((await warmPawl(['actor', 'incr', id, 'press', '--dry-run'], { url })).code).toBe(0);
  expect((await actors.get(id)).semaphores).toEqual({});
  expect(await warmPawl(['actor', 'incr', id, 'press', '-q'], { url })).toMatchObject({ code: 0, stdout: `${id}\n` });
  expect(await warmPawl(['actor', 'incr', id, 'pres'], { url })).toMatchObject({ code: 2 });
  expect(await warmPawl(['actor', 'pause', id], { url })).toMatchObject({ code: 0 });
  expect((await actors.get(id)).status).toBe('paused');
  const worked = await warmPawl(['actor', 'work', id, '--config', config, '-o', 'json'], { url });
  expect(JSON.parse(worked.stdout)).toMatchObject({ kind: 'to', from: 'off', to: 'on' });
  expect(await warmPawl(['actor', 'work', id], { url })).toMatchObject({ code: 2 });
  expect(await warmPawl(['actor', 'resume', id], { url })).toMatchObject({ code: 0 });
  expect(await warmPawl(['actor', 'pause', '--type', 'light', '--state', 'on'], { url })).toMatchObject({ code: 0 });
  expect(await warmPawl(['actor', 'pause', id, '--type', 'light'], { url })).toMatchObject({ code: 2 });
  expect(await warmPawl(['actor', 'destroy', id], { url })).toMatchObject({ code: 2 });
  expect(await warmPawl(['actor', 'destroy', id, '--yes'], { url })).toMatchObject({ code: 0 });
  for (const kind of ['to', 'done']) expect(await actors.work(id)).toMatchObject({ kind });
  expect(await warmPawl(['actor', 'incr', id, 'press'], { url })).toMatchObject({ code: 5 });
});

test('pages are listed, shown as HTML, acknowledged and resolved', async () => {
  const { url, actors, folder, id } = await scene();
  const { id: page } = await actors.page({ tag: 'dark', summary: 'it is dark' });
  expect((await warmPawl(['page', 'list', '-o', 'json'], { url })).stdout).toMatch(/"tag": ?"dark"/);
  const html = join(folder, 'page.html');
  expect(await warmPawl(['page', 'show', page, '--html', html], { url })).toMatchObject({ code: 0 });
  expect(await readFile(html, 'utf8')).toMatch(/it is dark/);
  expect(await warmPawl(['page', 'ack', page, '--by', 'ann'], { url })).toMatchObject({ code: 0 });
  expect(await actors.getPage(page)).toMatchObject({ status: 'acked', ackedBy: 'ann' });
  expect(await warmPawl(['page', 'resolve', page], { url })).toMatchObject({ code: 0 });
  expect(await actors.pages()).toEqual([]);
  expect(await warmPawl(['page', 'show', '4711'], { url })).toMatchObject({ code: 4 });
  void id;
});

test('a worker runs the actors of the config file, with its options and channels', async () => {
  const { url, folder, id, actors } = await scene();
  const config = join(folder, 'worker.mjs');
  const configure = (dispatcher: string): Promise<void> =>
    writeFile(config, CONFIG.replace('[Light]) })', `[Light]), dispatcher: ${dispatcher} })`));
  await configure('{ concurrency: 0 }');
  const refused = await pawl(['worker', '--config', config], { url });
  expect(refused).toMatchObject({ code: 2 });
  expect(refused.stderr).toMatch(/concurrency/);
  await configure(
    `{ poll: '100ms', channels: [{ name: 'test', deliver: async (page) => console.error('told of', page.tag) }] }`,
  );
  const worker = startPawl(['worker', '--config', config, '-v'], { url });
  await worker.said(/actor dispatcher: it polls for work/);
  await actors.incr(id, 'press');
  await actors.waitFor(id, { state: 'on', status: 'hibernating' });
  await actors.page({ tag: 'dark', summary: 'it is dark' });
  await worker.said(/told of dark/);
  worker.signal('SIGTERM');
  expect((await worker.ended).code).toBe(0);
});

test('the doctor sees actors that no worker runs, and open pages', async () => {
  const { url, actors } = await scene();
  await actors.page({ tag: 'dark', summary: 'it is dark' });
  const { stdout } = await warmPawl(['doctor', '-o', 'json'], { url });
  expect(JSON.parse(stdout)).toEqual(
    expect.arrayContaining([
      expect.objectContaining({ check: 'actors', verdict: 'warn', detail: 'due, but no worker runs: light' }),
      expect.objectContaining({ check: 'pages', verdict: 'warn', detail: '1 are open' }),
      expect.objectContaining({ check: 'held actors', verdict: 'ok' }),
    ]),
  );
});

test('a REPL has the actors at hand', async () => {
  const { url, config, id } = await scene();
  const { code, stdout } = await pawl(['repl', '--config', config], {
    url,
    input: `(await work('${id}')).kind\n(await get('${id}')).status\n.exit\n`,
  });
  expect(code).toBe(0);
  expect(stdout).toMatch(/'stay'[^]*'hibernating'/);
});

const Meter = actor('meter', {
  initial: 'counting',
  fieldHistory: '1h',
  states: (state) => ({
    counting: state({
      to: ['counting'],
      run: (a) => a.to('counting', { read: Number(a.fields['read'] ?? 0) + 1 }),
    }),
  }),
});

test('fields tells what turns changed, newest first, and that nothing is kept', async () => {
  const { url, id: light } = await scene();
  const engine = postgres(url);
  onTestFinished(() => engine.stop());
  const actors = createActors(engine, [Meter]);
  const { id } = await actors.create(Meter, { place: 'cellar' });
  for (let turn = 0; turn < 3; turn += 1) await actors.work(id);
  const fields = (...words: string[]) => warmPawl(['actor', 'fields', ...words], { url });
  const [head, last, , first] = (await fields(id)).stdout.split('\n');
  expect(head).toMatch(/^AT +EPOCH +STATE +CHANGED/);
  expect(last).toMatch(/ counting +read: 2 → 3$/);
  expect(first).toMatch(/ counting +read: none → 1$/);
  const epoch = (await fields(id, '--limit', '1', '-q')).stdout.trim();
  expect((await fields(id, '--limit', '1')).stderr).toContain(`there may be more: add --before ${epoch}`);
  const older = JSON.parse((await fields(id, '--before', epoch, '--limit', '1', '-o', 'json')).stdout);
  expect(older).toMatchObject([{ before: { read: 1 }, after: { place: 'cellar', read: 2 } }]);
  expect((await fields(light)).stderr).toContain('nothing is kept');
  expect(await fields('4711')).toMatchObject({ code: 4 });
});

const Desk = actor('desk', {
  initial: 'open',
  index: ['floor', 'vip'],
  backoff: { min: '1h' },
  states: (state) => ({
    open: state({
      to: ['closed'],
      run: async (a) => {
        if (a.fields['broken'] === true) throw new Error('it is broken');
        for (const message of await a.receive('where'))
          message.reply({ floor: a.fields['floor'], asked: message.payload });
        return a.hibernate();
      },
    }),
    closed: state({ run: (a) => a.hibernate() }),
  }),
});

test('actors are found by their fields, asked, moved and run anew', async () => {
  const { url } = await scene();
  const engine = postgres(url);
  const actors = createActors(engine, [Desk]);
  const dispatcher = actors.run({ poll: '50ms' });
  onTestFinished(async () => {
    await dispatcher.stop();
    await engine.stop();
  });
  const { id: first } = await actors.create(Desk, { floor: 1, vip: true });
  const { id: second } = await actors.create(Desk, { floor: 2, vip: true, broken: true });
  const list = (...where: string[]) =>
    warmPawl(['actor', 'list', '--type', 'desk', '-q', '--where', ...where], { url });
  expect((await list('vip=true')).stdout).toBe(`${second}\n${first}\n`);
  expect((await list('vip=true', 'floor=2')).stdout).toBe(`${second}\n`);
  expect(await list('floor=01')).toMatchObject({ code: 0, stdout: '' }); // a text, and no number of JSON
  expect(await list('color=red')).toMatchObject({ code: 2 });
  expect(await list('floor')).toMatchObject({ code: 2 });

  const asked = await warmPawl(['actor', 'ask', first, 'where', '{"n":1}', '-o', 'json'], { url });
  expect(JSON.parse(asked.stdout)).toEqual({ floor: 1, asked: { n: 1 } });
  expect(await warmPawl(['actor', 'ask', first, 'where', 'no json'], { url })).toMatchObject({ code: 2 });
  const sent = (...words: string[]) => warmPawl(['actor', 'send', ...words], { url });
  expect(await sent(first, 'nothing reads this', '{"n":1}')).toMatchObject({ code: 0 });
  await until('it has come', async () => (await actors.get(first)).messages === 1);
  expect(await sent(first, 'note', 'no json')).toMatchObject({ code: 2 });
  expect(await sent('987654321', 'note')).toMatchObject({ code: 4 });
  const late = await warmPawl(['actor', 'ask', second, 'where', '--wait', '100ms'], { url });
  expect(late.code).not.toBe(0);
  expect(late.stderr).toMatch(/no answer to .* came in time/);

  await actors.waitFor(second, { status: 'backing off' });
  const move = (...words: string[]) => warmPawl(['actor', 'move', second, ...words], { url });
  expect(await move('closed')).toMatchObject({ code: 2 });
  expect(await move('clsoed', '--reason', 'x')).toMatchObject({ code: 2 });
  expect(await move('open', '--reason', 'mended', '--patch', '[1]')).toMatchObject({ code: 2 });
  expect(await move('open', '--reason', 'mended', '--patch', '{"broken":false}', '--dry-run')).toMatchObject({
    code: 0,
  });
  expect((await actors.get(second)).fields).toMatchObject({ broken: true });
  expect(await move('open', '--reason', 'mended', '--patch', '{"broken":false}')).toMatchObject({ code: 0 });
  await actors.waitFor(second, { state: 'open', status: 'hibernating' });
  expect((await actors.history(second)).at(-1)?.reason).toBe('moved: mended');

  expect(await warmPawl(['actor', 'retry', first, second], { url })).toMatchObject({ code: 0 });
  expect(await warmPawl(['actor', 'retry', '4711'], { url })).toMatchObject({ code: 4 });
});
