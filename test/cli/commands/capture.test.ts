import { mkdtemp, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import pg from 'pg';
import { expect, onTestFinished, test } from 'vitest';
import { freshDatabase } from '../../support/database.ts';
import { until } from '../../support/eventually.ts';
import { startPawl } from '../pawl.ts';
import { warmPawl } from '../warm-pawl.ts';

const CONFIG = `
import { createCapture } from '${new URL('../../../dist/capture/index.js', import.meta.url).href}';
export default ({ engine }) => {
  const team = createCapture(engine, { entity: 'team', root: 'team', history: { team: { rows: 'both', columns: ['name'] } } });
  team.project({ into: 'team_search', columns: { name: 'text' }, text: ['name'], build: async (ids, tx) =>
    (await tx.client.query({ text: 'select id, name from team where id = any ($1::int[])', values: [ids] })).rows });
  return { captures: [team] };
};
`;

test('a capture is planned, applied, verified, followed, replayed, reconciled and taken out', async () => {
  const { url } = await freshDatabase();
  const folder = await mkdtemp(join(tmpdir(), 'pawl-test-capture-'));
  const client = new pg.Client({ connectionString: url });
  await client.connect();
  onTestFinished(async () => {
    await client.end();
    await rm(folder, { recursive: true, force: true });
  });
  const config = join(folder, 'captures.mjs');
  await writeFile(config, CONFIG);
  await client.query(
    "create table team (id int primary key, name text); insert into team select i, 'team ' || i from generate_series(1, 30) i",
  );
  const capture = (...args: string[]): ReturnType<typeof warmPawl> =>
    warmPawl(['capture', ...args, '--config', config], { url });

  const planned = await capture('plan', 'team');
  expect(planned).toMatchObject({
    code: 1,
    stdout: expect.stringMatching(/create trigger "pawl_capture_team_insert"/),
  });
  expect((await capture('apply', 'team', '--dry-run')).code).toBe(0);
  expect(await capture('verify', 'team')).toMatchObject({
    code: 4,
    stderr: expect.stringMatching(/no capture "team"/),
  });
  expect(await capture('apply', 'team', '--read-only')).toMatchObject({ code: 2 });
  expect((await capture('apply', 'team')).code).toBe(0);
  expect(await capture('plan', 'team')).toMatchObject({ code: 0, stdout: '' });
  expect((await capture('verify', 'team')).code).toBe(0);

  await client.query('alter table team disable trigger pawl_capture_team_update');
  const doctor = await warmPawl(['doctor', '-o', 'json'], { url });
  const findings: { check: string; verdict: string; detail: string; fix: string }[] = JSON.parse(doctor.stdout);
  expect(doctor.code).toBe(1);
  expect(findings.find(({ check }) => check === 'captures')).toMatchObject({
    verdict: 'fail',
    detail: expect.stringMatching(/team: update: it does not fire always/),
    fix: expect.stringMatching(/pawl capture apply team/),
  });
  expect(await capture('verify', 'team')).toMatchObject({
    code: 1,
    stdout: expect.stringMatching(/team: update.*fire always/),
  });
  expect((await capture('apply', 'team')).code).toBe(0);
  // Everything counts as changed since the trigger was disabled; no worker runs here that would go through it.
  const { rowCount } = await client.query('delete from pawl.capture_dirty where source = -1');
  expect(rowCount).toBe(1);

  expect(JSON.parse((await capture('replay', 'team', '-o', 'json')).stdout)).toEqual({
    projection: 'team_search',
    entities: 30,
  });
  await client.query("update team_search set name = 'forged' where id = 3");
  const drift = await capture('reconcile', 'team', '-o', 'json');
  expect([drift.code, JSON.parse(drift.stdout)]).toEqual([
    1,
    { projection: 'team_search', checked: 30, drifted: 1, keys: ['3'] },
  ]);
  const status = JSON.parse((await capture('status', 'team', '-o', 'json')).stdout);
  expect(status.lines).toMatchObject([
    { entity: 'team', name: 'team_search', guarantee: 'latest', outstanding: 1, failing: 0 },
  ]);

  await client.query("update pawl.capture_dirty set at = at - interval '1 hour'");
  expect((await warmPawl(['doctor', '-o', 'json'], { url })).stdout).toMatch(
    /"capture lag",\s*"verdict":\s*"warn"[^]*1 outstanding/,
  );
  const worker = startPawl(['worker', '--config', config], { url });
  await worker.said(/capture started/);
  await until('the worker has projected it', async () => {
    const { rows } = await client.query("select 1 from team_search where name = 'forged'");
    return rows.length === 0;
  });
  worker.signal('SIGTERM');
  expect((await worker.ended).code).toBe(0);

  const tail = startPawl(['capture', 'tail', 'team', '-o', 'jsonl'], { url });
  const lines = startPawl(['capture', 'tail', 'team'], { url });
  let n = 0;
  await until('a change is told', async () => {
    n += 1;
    await client.query('update team set name = $1 where id = 7', [`name ${n} \u009b31m`]);
    return tail.stdout().includes('"op":"update"') && lines.stdout().includes('update team');
  });
  expect(lines.stdout()).not.toContain('\u009b');
  lines.signal('SIGTERM');
  tail.signal('SIGTERM');
  expect((await tail.ended).code).toBe(0);
  const [told] = tail.stdout().trim().split('\n');
  expect(JSON.parse(told ?? '')).toMatchObject({ table: 'team', key: '7', after: { name: expect.any(String) } });

  expect(await capture('detach', 'teem')).toMatchObject({
    code: 4,
    stderr: expect.stringMatching(/did you mean "team"/),
  });
  expect((await capture('detach', 'team')).code).toBe(0);
  expect((await client.query("select 1 from pg_trigger where tgname like 'pawl%'")).rowCount).toBe(0);
});
