import { InvalidInput, NotFound } from '../../base/errors.ts';
import { anything, duration, integer, listOf, maybe, text, time, type Values } from '../protocol/field.ts';
import { onceOf } from '../protocol/idempotency.ts';
import { Reply } from '../protocol/reply.ts';
import { type AnyRoute, type Call, route } from '../protocol/route.ts';
import { traceOf } from '../protocol/telemetry.ts';
import type { Services } from '../services.ts';

/** Jobs of one request: what takes a second. */
const MOST = 1000;

const job = {
  kind: text({ max: 100 }),
  payload: anything('any JSON'),
  key: maybe(text({ about: 'jobs of one key run one after another; at most 1,000 bytes' })),
  priority: integer({ min: -32_768, max: 32_767, default: 0, about: 'lower runs first' }),
  runAt: maybe(time('not before')),
  delay: maybe(
    duration({ min: 0, max: '3650d', about: 'not before so long from now, such as "10m"; instead of runAt' }),
  ),
  attempts: maybe(integer({ min: 1, max: 1000, about: 'in place of those of its kind' })),
  timeout: maybe(duration({ min: 1, max: '3650d', about: 'for one attempt, in place of that of its kind' })),
  backoff: anything(
    'the wait between attempts: "fixed", "linear", "exponential", or {kind, min, max, factor, jitter}, times in ms',
  ),
  expiresAt: maybe(time('it ends as cancelled if it has not begun by then')),
  tags: maybe(listOf(text({ max: 100 }), { max: 20 }, 'words to find it by')),
  meta: anything('an object of at most 16 KiB for handlers and people'),
};

type Job = Values<typeof job>;

export const enqueueRoute: AnyRoute = route({
  method: 'POST',
  path: '/queues/{queue}/jobs',
  id: 'enqueueJob',
  tag: 'jobs',
  summary:
    'Adds a job; or, as a list, up to 1,000, all or none. Asked again with the same Idempotency-Key within a day, it answers what it did the first time, as a duplicate, and adds nothing. The payload is kept to the letter as far as jsonb does. It is checked by its schema when it runs; and here already where this server was given the queue.',
  permission: 'job:enqueue',
  params: { queue: text({ max: 100 }) },
  body: job,
  list: { max: MOST },
  takesKey: true,
  status: 201,
  answers: { anyOf: [{ $ref: '#/components/schemas/Enqueued' }, { $ref: '#/components/schemas/EnqueuedList' }] },
  target: ({ params }) => `queue ${params.queue}`,
  run: enqueue,
});

async function enqueue(call: Call<{ queue: typeof job.kind }, Record<never, never>, typeof job>): Promise<Reply> {
  const { params, body, list, text: raw, request, who, services, effects } = call;
  const { queue } = params;
  const jobs = list ?? [body];
  for (const [index, one] of jobs.entries()) {
    await within(list === undefined ? undefined : index, check(services, queue, one));
  }
  const requests = jobs.map((one) => requestOf(queue, one));
  const added = list === undefined ? requests[0] : requests;
  const once = onceOf(request, who.name, raw);
  const answer = await effects.jobs.enqueue(once, raw, JSON.stringify(added), traceOf(request.headers));
  if (Array.isArray(answer)) return new Reply({ items: answer }, {});
  return new Reply(answer, { headers: locationOf(services, answer) });
}

/** Where a job is to be looked at. */
export function locationOf({ settings }: Services, answer: unknown): Record<string, string> {
  return { location: `${settings.basePath}/api/v1/jobs/${String(Reflect.get(Object(answer), 'id'))}` };
}

async function check({ program }: Services, queue: string, { kind, payload, key, runAt, delay }: Job): Promise<void> {
  if (key !== undefined && Buffer.byteLength(key) > 1000) {
    throw new InvalidInput('key must be at most 1000 bytes', { field: 'key' });
  }
  if (runAt !== undefined && delay !== undefined) {
    throw new InvalidInput('give either runAt or delay', { field: 'delay' });
  }
  const declared = program.queues.find(({ name }) => name === queue);
  try {
    await declared?.check(kind, payload, { key });
  } catch (cause) {
    // The queue is there, as far as this server knows: what is wrong is in the request.
    if (cause instanceof NotFound) throw new InvalidInput(cause.message, { field: 'kind', cause });
    throw cause;
  }
}

/** Says of which job of a list a refusal is. */
async function within(index: number | undefined, checking: Promise<void>): Promise<void> {
  try {
    await checking;
  } catch (cause) {
    if (index === undefined || !(cause instanceof InvalidInput)) throw cause;
    throw new InvalidInput(`job ${index}: ${cause.message}`, { field: `${index}.${cause.field ?? 'payload'}`, cause });
  }
}

function requestOf(queue: string, { payload: _payload, runAt, delay, expiresAt, ...rest }: Job): object {
  // A text: to the database "10m" could be months.
  const wait = delay === undefined ? {} : { delay: `${delay} milliseconds` };
  return { ...rest, queue, runAt: runAt?.toISOString(), expiresAt: expiresAt?.toISOString(), ...wait };
}
