import { InvalidInput, NotFound } from '../../base/errors.ts';
import { anything, choice, duration, type Field, integer, listOf, maybe, text, time } from '../protocol/field.ts';
import { onceOf } from '../protocol/idempotency.ts';
import { Reply } from '../protocol/reply.ts';
import { type AnyRoute, type Call, route } from '../protocol/route.ts';
import { traceOf } from '../protocol/telemetry.ts';
import type { Services } from '../services.ts';

/** The most jobs of one request, which take a second. */
const MOST = 1000;
const AFTER_FAILURE = ['run', 'error', 'cancel'] as const;

/** A job in the form of a request. */
export interface JobBody {
  readonly kind: string;
  readonly payload: unknown;
  readonly key: string | undefined;
  readonly group: string | undefined;
  readonly priority: number;
  readonly runAt: Date | undefined;
  /** In milliseconds. */
  readonly delay: number | undefined;
  readonly attempts: number | undefined;
  readonly timeout: number | undefined;
  readonly backoff: unknown;
  readonly expiresAt: Date | undefined;
  readonly onError: string | undefined;
  readonly tags: readonly string[] | undefined;
  readonly meta: unknown;
  readonly unique: unknown;
  readonly after: unknown;
  readonly afterError: AfterFailure | undefined;
  readonly afterCancel: AfterFailure | undefined;
}

type AfterFailure = (typeof AFTER_FAILURE)[number];
type JobFields = { readonly [N in keyof JobBody]: Field<JobBody[N]> };

const waiting = {
  wait: maybe(duration({ min: 0, max: '30s', about: 'for one job: how long to wait, at most, until it is settled' })),
};

export const jobFields: JobFields = {
  kind: text({ max: 100 }),
  payload: anything('any JSON'),
  key: maybe(text({ about: 'jobs of one key run one after another; at most 1,000 bytes' })),
  group: maybe(text({ max: 100, about: 'the queue declares how many jobs of one group run at a time' })),
  priority: integer({ min: -32_768, max: 32_767, default: 0, about: 'lower runs first' }),
  runAt: maybe(time('not before')),
  delay: maybe(duration({ min: 0, max: '3650d', about: 'a delay from now, such as "10m"; instead of runAt' })),
  attempts: maybe(integer({ min: 1, max: 1000, about: 'in place of those of its kind' })),
  timeout: maybe(duration({ min: 1, max: '3650d', about: 'for one attempt, in place of that of its kind' })),
  backoff: anything(
    'the wait between attempts: "fixed", "linear", "exponential", or {kind, min, max, factor, jitter}, times in ms',
  ),
  expiresAt: maybe(time('it ends as cancelled if it has not begun by then')),
  onError: maybe(text({ max: 100, about: 'the kind of its dead letter, in place of that of its kind' })),
  tags: maybe(listOf(text({ max: 100 }), { max: 20 }, 'words to find it by')),
  meta: anything('an object of at most 16 KiB for handlers and people'),
  unique: anything(
    'allows one job of a rule at a time: true, false, or {by, while, per, replace}; default: what its kind declares. replace also needs job:update',
  ),
  after: anything('ids of jobs, and {"batch": id}, that have to end before: a list'),
  afterError: maybe(choice(AFTER_FAILURE, 'what happens to this job if one of those ended in error; default: error')),
  afterCancel: maybe(choice(AFTER_FAILURE, 'the same if one was cancelled; default: cancel')),
};

export const enqueueRoute: AnyRoute = route({
  method: 'POST',
  path: '/queues/{queue}/jobs',
  id: 'enqueueJob',
  tag: 'jobs',
  summary:
    'Adds a job; or, as a list, up to 1,000, all or none. With wait it answers when that job is settled, with its status by then. Asked again with the same Idempotency-Key within a day, it answers what it did the first time, as a duplicate, and adds nothing. The payload is kept to the letter as far as jsonb does. It is checked by its schema when it runs; and here already where this server was given the queue.',
  permission: 'job:enqueue',
  params: { queue: text({ max: 100 }) },
  body: jobFields,
  query: waiting,
  list: { max: MOST },
  takesKey: true,
  status: 201,
  answers: { anyOf: [{ $ref: '#/components/schemas/Enqueued' }, { $ref: '#/components/schemas/EnqueuedList' }] },
  target: ({ params }) => `queue ${params.queue}`,
  run: enqueue,
});

async function enqueue(call: Call<{ queue: typeof jobFields.kind }, typeof waiting, typeof jobFields>): Promise<Reply> {
  const { params, query, body, list, text: raw, request, who, services, effects } = call;
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
  return new Reply(await settled(services, answer, query.wait, request.signal), {
    headers: locationOf(services, answer),
  });
}

/**
 * Waits until the job is settled or the time is over. The job is added, so whatever fails here is no failure of the request.
 * @returns the same answer, with the status of the job then, if that could be read
 */
async function settled(
  { jobs, queues, engine }: Services,
  answer: unknown,
  wait: number | undefined,
  signal: AbortSignal,
): Promise<unknown> {
  if (wait === undefined) return answer;
  const id = String(Reflect.get(Object(answer), 'id'));
  try {
    await jobs.settled(id, wait, signal);
    return { ...Object(answer), status: (await queues.reads.get(id)).status };
  } catch (error) {
    engine.options.logger.warn({ err: error, job: id }, 'http: the end of an added job could not be waited for');
    return answer;
  }
}

/** The address at which the job can be read. */
export function locationOf({ settings }: Services, answer: unknown): Record<string, string> {
  return { location: `${settings.basePath}/api/v1/jobs/${String(Reflect.get(Object(answer), 'id'))}` };
}

/** @throws InvalidInput  the job cannot be enqueued as it is */
export async function check(
  services: Services,
  queue: string,
  { kind, payload, key, runAt, delay }: JobBody,
): Promise<void> {
  if (key !== undefined && Buffer.byteLength(key) > 1000) {
    throw new InvalidInput('key must be at most 1000 bytes', { field: 'key' });
  }
  if (runAt !== undefined && delay !== undefined) {
    throw new InvalidInput('give either runAt or delay', { field: 'delay' });
  }
  await checkPayload(services, queue, { kind, payload, key });
}

/** Checks by the schema of its kind, if this server was given the queue. @throws InvalidInput */
export async function checkPayload(
  { program }: Services,
  queue: string,
  { kind, payload, key }: Pick<JobBody, 'kind' | 'payload' | 'key'>,
): Promise<void> {
  const declared = program.queues.find(({ name }) => name === queue);
  try {
    await declared?.check(kind, payload, { key });
  } catch (cause) {
    // The server was given this queue, so the error is in the request.
    if (cause instanceof NotFound) throw new InvalidInput(cause.message, { field: 'kind', cause });
    throw cause;
  }
}

/** Adds to a refusal the place of its job in the list. */
export async function within(index: number | undefined, checking: Promise<void>): Promise<void> {
  try {
    await checking;
  } catch (cause) {
    if (index === undefined || !(cause instanceof InvalidInput)) throw cause;
    throw new InvalidInput(`job ${index}: ${cause.message}`, { field: `${index}.${cause.field ?? 'payload'}`, cause });
  }
}

/** The fields of a job except its payload, in the form for `pawl.enqueue()`. */
export function requestOf(
  queue: string | undefined,
  { payload: _payload, runAt, delay, expiresAt, unique, after, ...rest }: JobBody,
): object {
  // As text: the database could read "10m" as months.
  const wait = delay === undefined ? {} : { delay: `${delay} milliseconds` };
  return {
    ...rest,
    ...(unique !== null && { unique }),
    ...(after !== null && { after }),
    queue,
    runAt: runAt?.toISOString(),
    expiresAt: expiresAt?.toISOString(),
    ...wait,
  };
}
