import { beforeAll, describe, expect, onTestFinished, test } from 'vitest';
import { postgres, statement } from '../../../src/engine/postgres/index.ts';
import { createHttp } from '../../../src/http/index.ts';
import { createLocks } from '../../../src/lock/index.ts';
import { until } from '../../support/eventually.ts';
import { recordLog } from '../../support/log.ts';
import { startProxy } from '../../support/proxy.ts';
import { OPEN_DOOR } from '../../support/servers/open-door.ts';
import { type House, makeHouse, type Visitor } from '../house.ts';

let house: House;
let visitor: Visitor;
beforeAll(async () => {
  house = await makeHouse();
  visitor = house.open();
  return () => house.stop();
});

interface StreamEvent {
  readonly id: string;
  readonly event: string;
  readonly data: { readonly part: string; readonly event: string; readonly subject: string; readonly id: string };
}

/** Opens a stream of events, and waits until it is open. */
async function listen(
  query: string,
  lastId?: string,
): Promise<{ told: StreamEvent[]; status: number; close: () => void }> {
  const ending = new AbortController();
  onTestFinished(() => ending.abort());
  const headers: Record<string, string> = lastId === undefined ? {} : { 'last-event-id': lastId };
  const request = new Request(`http://localhost/api/v1/events?${query}`, { headers, signal: ending.signal });
  const response = await visitor.handler(request, { remoteAddress: '127.0.0.1' });
  const told: StreamEvent[] = [];
  let isOpen = false;
  const read = async (): Promise<void> => {
    let rest = '';
    for await (const chunk of response.body ?? []) {
      rest += new TextDecoder().decode(chunk);
      const parts = rest.split('\n\n');
      rest = parts.pop() ?? '';
      for (const part of parts) {
        const fields = Object.fromEntries(part.split('\n').map((line) => line.split(/: (.*)/s).slice(0, 2)));
        if (fields['event'] === 'open') isOpen = true;
        else if (fields['event'] !== undefined)
          told.push({ ...fields, data: JSON.parse(fields['data']) } as StreamEvent);
      }
    }
  };
  void read().catch(() => {});
  if (response.status === 200) await until('the stream is open', () => isOpen);
  return { told, status: response.status, close: () => ending.abort() };
}

/** So many moves of jobs, within a moment. */
async function moves(n: number, queue = 'mail'): Promise<void> {
  await house.engine.query(
    statement(
      'test.moves',
      `insert into pawl.queue_transition (at, id, shard, queue, attempt, from_status, to_status, reason)
      select clock_timestamp() - n * interval '1 ms', nextval('pawl.queue_job_id'), 0, d.id, 0, 'new', 'new', 'many'
      from pawl.queue_definition d cross join generate_series(1, $1::int) n where d.name = $2`,
    ),
    [n, queue],
  );
}

const retire = async (): Promise<string> => {
  const added = await visitor.ask('/api/v1/queues/mail/jobs', { method: 'POST', body: { kind: 'send' } });
  const id = String(added.body['id']);
  await visitor.ask(`/api/v1/jobs/${id}/cancel`, { method: 'POST', body: {} });
  return id;
};

describe('a stream of what happens', () => {
  test('sends the parts, the subject and the event that were asked for, and nothing else', async () => {
    const jobs = await listen('part=job&of=mail');
    const both = await listen('part=lock,job');
    const pages = await listen('part=page');
    const cancelled = await listen('of=mail&event=complete');
    const locks = createLocks(house.engine);
    await (await locks.acquire('watched')).release();
    const id = await retire();
    await visitor.ask(`/api/v1/pages/${house.ids.page}/resolve`, { method: 'POST', body: {} });
    await until('the job is sent', () => jobs.told.some(({ data }) => data.id === id));
    await until('the lock is sent', () => both.told.some(({ data }) => data.subject === 'watched'));
    await until('the job is sent there, too', () => both.told.some(({ data }) => data.id === id));
    await until('the page is sent', () => pages.told.some(({ data }) => data.event === 'resolved'));
    expect(new Set(jobs.told.map(({ data }) => `${data.part} ${data.subject}`))).toEqual(new Set(['job mail']));
    expect(new Set(both.told.map(({ data }) => data.part))).toEqual(new Set(['job', 'lock']));
    expect(new Set(pages.told.map(({ data }) => data.part))).toEqual(new Set(['page']));
    expect(cancelled.told).toEqual([]);
    // Words may quote values: the history shows them to callers with the permission.
    const told = Object.keys(jobs.told[0]?.data ?? {});
    expect(told).toContain('event');
    for (const quoting of ['detail', 'error']) expect(told).not.toContain(quoting);
    expect((await listen('part=audit')).status).toBe(400);
    expect((await listen('of=')).status).toBe(400);
  });

  test('sends a client that comes back with an id the events that it missed, and begins anew with an unknown id', async () => {
    const first = await listen('part=job');
    const seen = await retire();
    const last = await until('it is told', () => first.told.find(({ data }) => data.id === seen));
    first.close();
    const missed = await retire();
    const again = await listen('part=job', last.id);
    await until('what was missed is told', () => again.told.some(({ data }) => data.id === missed));
    expect(again.told.map(({ id }) => id)).not.toContain(last.id);
    expect(new Set(again.told.map(({ id }) => id)).size).toBe(again.told.length);
    expect((await listen('part=job', 'nonsense')).status).toBe(400);
  });

  test('sends a client all that comes at once, also when it comes back, and goes on', async () => {
    const stream = await listen('part=job&of=mail');
    await moves(300);
    await until('all of it is told', () => stream.told.length >= 300);
    const next = await retire();
    await until('what follows is told', () => stream.told.some(({ data }) => data.id === next));
    const again = await listen('part=job&of=mail', stream.told[0]?.id);
    await until('what it missed is told', () => again.told.length >= 300);
    const last = await retire();
    await until('what follows is told, too', () => again.told.some(({ data }) => data.id === last));
  });

  test('says that some are missing when more come at once than it reads', async () => {
    const stream = await listen('part=job&of=later');
    await moves(5100, 'later');
    await until('it has learnt of the newest', () => stream.told.length >= 5000);
    expect(stream.told[0]?.event).toBe('gap');
    expect(stream.told.filter(({ event }) => event === 'gap')).toHaveLength(1);
  });

  test('ends when the database does not answer at its beginning, so that its client comes back', async () => {
    const proxy = await startProxy(house.url);
    const engine = postgres(proxy.url, { logger: recordLog() });
    const handler = createHttp(engine, { auth: OPEN_DOOR });
    onTestFinished(async () => {
      await handler.stop();
      await engine.stop();
      await proxy.stop();
    });
    proxy.refuse();
    const response = await handler(new Request('http://localhost/api/v1/events?part=job'), {
      remoteAddress: '127.0.0.1',
    });
    expect(await response.text()).toContain('event: trouble');
  });

  test('sends an event that is committed after a later one', async () => {
    const stream = await listen('part=job');
    const late = String(
      (await visitor.ask('/api/v1/queues/mail/jobs', { method: 'POST', body: { kind: 'send' } })).body['id'],
    );
    let early = '';
    await house.engine.transaction(async (tx) => {
      await tx.query(statement('test.cancel', 'select pawl.queue_cancel_job(null, $1::bigint, null)'), [late]);
      early = await retire();
      await until('what was committed is told', () => stream.told.some(({ data }) => data.id === early));
      expect(stream.told.some(({ data }) => data.id === late)).toBe(false);
    });
    await until('what was dated before it is told, too', () => stream.told.some(({ data }) => data.id === late));
  });
});
