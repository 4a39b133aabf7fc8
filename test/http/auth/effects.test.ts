import { beforeAll, describe, expect, test } from 'vitest';
import { statement } from '../../../src/engine/postgres/index.ts';
import { ROUTES } from '../../../src/http/app.ts';
import { changes } from '../../../src/http/auth/permission.ts';
import { PERMISSIONS, type Permission } from '../../../src/http/index.ts';
import { type Answer, type House, makeHouse } from '../house.ts';

let house: House;
/** An open one. */
let batch: string;
beforeAll(async () => {
  house = await makeHouse();
  batch = String((await house.open().ask('/api/v1/batches', { method: 'POST', body: { queue: 'mail' } })).body['id']);
  return () => house.stop();
});

/** A job that takes the place of one that waits. */
const REPLACING = { key: 'waits', unique: { by: 'key', while: 'waiting', replace: true } };
const REPLACES: readonly Permission[] = ['job:enqueue', 'job:update'];
const HANDLE = '00000000-0000-4000-8000-000000000000';

/** One way to bring something about, and everything that it takes. */
interface Way {
  readonly path: string;
  readonly body?: object;
  readonly needs: readonly Permission[];
}

/** Every route that changes something, by each of the effects it can have. */
const ways = (): Readonly<Record<string, readonly Way[]>> => {
  const { waiting, failed, actor, page } = house.ids;
  const of = (path: string, needs: Permission | readonly Permission[], body?: object): readonly Way[] => [
    { path, needs: [needs].flat(), ...(body && { body }) },
  ];
  return {
    pauseQueue: of('/queues/mail/pause', 'queue:pause'),
    removeQueue: of('/queues/mail', 'queue:remove'),
    updateJob: of(`/jobs/${waiting}/update`, 'job:update', { priority: 3 }),
    finishJob: of('/jobs/987654/finish', 'job:update', {}),
    skipJob: of(`/jobs/${failed}/skip`, 'job:retry'),
    redriveJob: of(`/jobs/${failed}/redrive`, 'job:retry'),
    eraseJob: of('/jobs/987654', 'job:erase'),
    addFlow: [
      ...of('/flows', 'job:enqueue', { name: 'a', queue: 'mail', kind: 'send' }),
      ...of('/flows', REPLACES, { name: 'a', queue: 'mail', kind: 'send', ...REPLACING }),
    ],
    makeBatch: [
      ...of('/batches', 'job:enqueue', { queue: 'mail' }),
      ...of('/batches', REPLACES, { queue: 'mail', onDone: { kind: 'send', ...REPLACING } }),
    ],
    addToBatch: [
      ...of('/batches/987654/jobs', 'job:enqueue', { kind: 'send' }),
      ...of(`/batches/${batch}/jobs`, REPLACES, { kind: 'send', ...REPLACING }),
    ],
    sealBatch: of('/batches/987654/seal', 'job:enqueue'),
    publish: [
      ...of('/topics/news/jobs', 'job:enqueue', {}),
      ...of('/topics/news/jobs', REPLACES, { payload: { to: 'eve' }, ...REPLACING }),
    ],
    resumeQueue: of('/queues/mail/resume', 'queue:pause'),
    claimJobs: of('/queues/later/claim', ['job:work', 'payload:read']),
    completeJob: of('/claims/complete', 'job:work', { handle: 'none' }),
    failJob: of('/claims/fail', 'job:work', { handle: 'none', error: 'no paper' }),
    releaseJob: of('/claims/release', 'job:work', { handle: 'none' }),
    extendClaim: of('/claims/extend', 'job:work', { handle: 'none' }),
    releaseWorker: of('/workers/999999/release', 'worker:release'),
    enqueueJob: [
      ...of('/queues/mail/jobs', 'job:enqueue', { kind: 'send' }),
      ...of('/queues/mail/jobs', REPLACES, { kind: 'send', payload: { to: 'eve' }, ...REPLACING }),
      ...of('/queues/mail/jobs', 'job:enqueue', { kind: 'send', meta: { replace: true } }),
    ],
    retryJob: [
      { path: `/jobs/${failed}/retry`, needs: ['job:retry'] },
      { path: `/jobs/${failed}/retry`, body: { payload: { to: 'eve' } }, needs: ['job:retry', 'job:enqueue'] },
    ],
    cancelJob: of(`/jobs/${waiting}/cancel`, 'job:cancel', {}),
    startBulk: [
      { path: '/bulk', body: { action: 'retry', query: 'status:error' }, needs: ['job:bulk', 'job:retry'] },
      { path: '/bulk', body: { action: 'cancel', query: 'status:new' }, needs: ['job:bulk', 'job:cancel'] },
      { path: '/bulk', body: { action: 'finish', query: 'kind:none' }, needs: ['job:bulk', 'job:update'] },
      { path: '/bulk', body: { action: 'redrive', query: 'status:new' }, needs: ['job:bulk', 'job:retry'] },
      { path: '/bulk', body: { action: 'erase', jobs: ['987654'] }, needs: ['job:bulk', 'job:erase'] },
      { path: '/bulk', body: { action: 'move', to: 'later', query: 'kind:none' }, needs: ['job:bulk', 'job:move'] },
      { path: '/bulk', body: { action: 'cancel', jobs: [waiting] }, needs: ['job:bulk', 'job:cancel'] },
      { path: '/bulk', body: { action: 'retry', jobs: [failed] }, needs: ['job:bulk', 'job:retry'] },
      {
        path: '/bulk',
        body: { action: 'cancel', query: 'bob status:new' },
        needs: ['job:bulk', 'job:cancel', 'payload:read', 'error:read'],
      },
    ],
    stopBulk: of('/bulk/1/stop', 'job:bulk'),
    acquireLock: of('/locks', 'lock:hold', { name: 'new' }),
    renewLock: of('/locks/renew', 'lock:hold', { name: 'new', handle: HANDLE }),
    releaseLock: of('/locks/release', 'lock:hold', { name: 'new', handle: HANDLE }),
    breakLock: of('/locks/break', 'lock:break', { name: 'invoice:42', reason: 'a test' }),
    incrActor: [
      { path: `/actors/${actor}/incr`, body: { semaphore: 'configure' }, needs: ['actor:signal'] },
      { path: `/actors/${actor}/incr`, body: { semaphore: 'destroy' }, needs: ['actor:signal', 'actor:destroy'] },
    ],
    sendToActor: of(`/actors/${actor}/messages`, 'actor:signal', { name: 'hello' }),
    askActor: of('/actors/987654/ask', 'actor:signal', { name: 'hello' }),
    retryActor: of(`/actors/${actor}/retry`, 'actor:signal'),
    moveActor: of(`/actors/${actor}/move`, 'actor:move', { state: 'running', reason: 'a test' }),
    workActor: of(`/actors/${actor}/work`, 'actor:work'),
    destroyActor: of(`/actors/${actor}/destroy`, 'actor:destroy'),
    pauseActor: of(`/actors/${actor}/pause`, 'actor:pause'),
    resumeActor: of(`/actors/${actor}/resume`, 'actor:pause'),
    pauseActorType: of('/actor-types/server/pause', 'actor:pause', {}),
    resumeActorType: of('/actor-types/server/resume', 'actor:pause', {}),
    runSchedule: of('/schedules/mail/nightly/run', 'job:enqueue'),
    pauseSchedule: of('/schedules/mail/nightly/pause', 'schedule:pause'),
    resumeSchedule: of('/schedules/mail/nightly/resume', 'schedule:pause'),
    setSchedule: of('/schedules/mail/hourly', 'schedule:write', { cron: '0 * * * *', kind: 'send' }),
    deleteSchedule: of('/schedules/mail/nightly', 'schedule:write'),
    ackPage: of(`/pages/${page}/ack`, 'page:ack'),
    resolvePage: of(`/pages/${page}/resolve`, 'page:resolve'),
    applyCapture: of('/captures/person/apply', 'capture:install'),
    replayCapture: of('/captures/person/replay', 'capture:repair', {}),
    reconcileCapture: of('/captures/person/reconcile', 'capture:repair', { dryRun: true }),
    detachCapture: of('/captures/person/detach', 'capture:detach', { confirm: 'another' }),
    writeFile: of('/files/one/content?id=doc/3', 'file:write', {}),
    restoreFile: of('/files/restore', 'file:write', { id: 'doc/1', version: 1 }),
    removeFile: of('/files/remove', 'file:remove', { id: 'doc/1' }),
    sweepFiles: of('/files/sweep', 'file:sweep', {}),
    reconcileFiles: of('/files/reconcile', 'file:sweep', {}),
    quarantineFiles: of('/files/quarantine', 'file:repair', {}),
    rearmFiles: of('/files/rearm', 'file:repair', { confirm: '' }),
    runDevControl: of('/dev/none', 'dev'),
  };
};

const acting = ROUTES.filter(({ permission }) => permission !== undefined && changes(permission));

async function ask(id: string, { path, body }: Way, permissions: readonly Permission[]): Promise<Answer> {
  const method = acting.find((route) => route.id === id)?.method ?? 'none';
  const { ask: send, handler } = house.open({ auth: { authorize: () => ({ name: 'caller', permissions }) } });
  const headers = { 'sec-fetch-site': 'same-origin' };
  const answer = await send(`/api/v1${path}`, { method, headers, ...(body && { body }) });
  await handler.stop();
  return answer;
}

/** Everything that the ways above would change. */
async function everything(): Promise<unknown> {
  const tables = ['queue_job', 'queue_definition', 'http_bulk', 'actor_inbox', 'actor_instance', 'actor_type'];
  const more = ['actor_message', 'actor_page', 'queue_schedule', 'file_document', 'capture_definition'];
  // A lease is renewed meanwhile.
  const columns = (table: string): string => (table === 'lock_grant' ? 't.name || t.token' : 't::text');
  const read = async (table: string): Promise<unknown> => {
    const text = `select md5(string_agg(${columns(table)}, ',' order by ${columns(table)})) as digest from pawl.${table} t`;
    return [table, await house.engine.query(statement('test.digest', text, { prepare: false }))];
  };
  return Promise.all([...tables, ...more, 'lock_grant'].map(read));
}

describe('an effect has one permission, whichever way it is brought about', () => {
  test('and every route that changes something is in the table of this test', () => {
    expect(acting.map(({ id }) => id).sort()).toEqual(Object.keys(ways()).sort());
  });

  test('a caller without any one of its permissions is refused, and nothing is changed', async () => {
    const before = await everything();
    for (const [id, all] of Object.entries(ways())) {
      for (const way of all) {
        for (const lacking of way.needs) {
          const others = PERMISSIONS.filter((one) => one !== lacking);
          const { status, body } = await ask(id, way, others);
          const what = [id, way.body, lacking];
          expect([what, status, body.error?.code]).toEqual([what, 403, 'forbidden']);
          expect(body.error?.message).toContain(lacking);
        }
      }
    }
    expect(await everything()).toEqual(before);
  });

  test('and these are enough', async () => {
    for (const [id, all] of Object.entries(ways())) {
      for (const way of all) {
        const { status, text } = await ask(id, way, way.needs);
        expect([id, way.body, status === 403 || status >= 500, text]).toEqual([id, way.body, false, text]);
      }
    }
  });
});
