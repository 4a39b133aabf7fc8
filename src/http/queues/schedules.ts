import { nextTicks, type ScheduleOptions, type ScheduleRecord } from '../../queue/index.ts';
import { checkPayload } from '../jobs/enqueue.ts';
import { anything, choice, duration, integer, maybe, text } from '../protocol/field.ts';
import { type AnyRoute, route } from '../protocol/route.ts';

const schedule = { queue: text({ max: 100 }), name: text({ max: 100, about: 'the name of a schedule' }) };
const SHOWN = 10;

/** Schedules: jobs that are enqueued again and again. Programs declare their own; operators set others. */
export const scheduleRoutes: readonly AnyRoute[] = [
  route({
    method: 'GET',
    path: '/schedules',
    id: 'listSchedules',
    tag: 'schedules',
    summary: 'The schedules of one queue or of all, each with its next ten ticks.',
    permission: 'view',
    query: { queue: maybe(text({ max: 100 })) },
    answers: 'ScheduleList',
    sharedMs: 1000,
    run: async ({ query, services: { queues } }) => ({ items: (await queues.reads.schedules(query.queue)).map(shown) }),
  }),
  route({
    method: 'GET',
    path: '/schedules/{queue}/{name}/runs',
    id: 'listScheduleRuns',
    tag: 'schedules',
    summary:
      'The jobs that a schedule has enqueued, newest first, at its ticks and by hand; the newest hundred are kept.',
    permission: 'view',
    params: schedule,
    query: { limit: integer({ min: 1, max: 100, default: 10 }) },
    answers: 'ScheduleRunList',
    run: async ({ params, query: { limit }, services: { queues } }) => ({
      items: await queues.reads.scheduleRuns(params.queue, params.name, { limit }),
    }),
  }),
  route({
    method: 'POST',
    path: '/schedules/{queue}/{name}/run',
    id: 'runSchedule',
    tag: 'schedules',
    summary: 'Enqueues now what the schedule would; its ticks stay as they are.',
    permission: 'job:enqueue',
    params: schedule,
    status: 201,
    answers: 'Enqueued',
    target: ({ params }) => `schedule ${params.name} of queue ${params.queue}`,
    run: ({ params, effects: { queues } }) => queues.runSchedule(params.queue, params.name),
  }),
  route({
    method: 'POST',
    path: '/schedules/{queue}/{name}/pause',
    id: 'pauseSchedule',
    tag: 'schedules',
    summary:
      'Lets a schedule enqueue nothing until it is resumed, also when a program declares it again; ticks that come meanwhile are passed over.',
    permission: 'schedule:pause',
    params: schedule,
    answers: 'Done',
    target: ({ params }) => `schedule ${params.name} of queue ${params.queue}`,
    run: async ({ params, effects: { queues } }) => {
      await queues.pauseSchedule(params.queue, params.name);
      return { done: `schedule "${params.name}" of queue "${params.queue}" is paused` };
    },
  }),
  route({
    method: 'POST',
    path: '/schedules/{queue}/{name}/resume',
    id: 'resumeSchedule',
    tag: 'schedules',
    summary: 'Lets a schedule enqueue again, from its next tick on.',
    permission: 'schedule:pause',
    params: schedule,
    answers: 'Done',
    target: ({ params }) => `schedule ${params.name} of queue ${params.queue}`,
    run: async ({ params, effects: { queues } }) => {
      await queues.resumeSchedule(params.queue, params.name);
      return { done: `schedule "${params.name}" of queue "${params.queue}" is resumed` };
    },
  }),
  route({
    method: 'PUT',
    path: '/schedules/{queue}/{name}',
    id: 'setSchedule',
    tag: 'schedules',
    summary:
      'Sets a schedule, new or in place of the one of this name, as a whole: an option that is left out gets its default. With the same pattern and zone it keeps its next tick, and a paused one stays paused, so the same request again changes nothing. 409: it is of the set that a program declares. A program that declares a schedule of this name alone writes over it at its next start.',
    permission: 'schedule:write',
    params: schedule,
    body: {
      cron: text({ max: 100, about: 'five fields, six with seconds in front, or @daily and the like' }),
      timezone: maybe(text({ max: 100, about: 'an IANA name; default: UTC' })),
      kind: text({ max: 100 }),
      payload: anything('any JSON; its numbers as JavaScript has them'),
      key: maybe(text({ about: 'the key of its jobs; at most 1,000 bytes' })),
      group: maybe(text({ max: 100, about: 'the queue declares how many jobs of one group run at a time' })),
      priority: integer({ min: -32_768, max: 32_767, default: 0, about: 'lower runs first' }),
      missed: anything('ticks that no worker saw: "skip", "last" (default), "all", or {"all": "1d"}'),
      overlap: choice(['queue', 'skip'], 'what a tick does while a job of the schedule is outstanding', 'queue'),
      jitter: maybe(duration({ min: 1, max: '1d', about: 'each job waits for a random part of it after its tick' })),
    },
    answers: 'Schedule',
    target: ({ params }) => `schedule ${params.name} of queue ${params.queue}`,
    run: async ({ params: { queue, name }, body: { missed, ...body }, services, effects }) => {
      await checkPayload(services, queue, body);
      const options = { ...body, ...(missed !== null && { missed }) } as ScheduleOptions;
      await effects.queues.setSchedule(queue, name, options);
      return shown(await services.queues.reads.schedule(queue, name));
    },
  }),
  route({
    method: 'DELETE',
    path: '/schedules/{queue}/{name}',
    id: 'deleteSchedule',
    tag: 'schedules',
    summary:
      'Ends a schedule; the jobs that it has enqueued stay. A program that declares it creates it again at its start.',
    permission: 'schedule:write',
    params: schedule,
    answers: 'Done',
    target: ({ params }) => `schedule ${params.name} of queue ${params.queue}`,
    run: async ({ params, effects: { queues } }) => {
      await queues.unschedule(params.queue, params.name);
      return { done: `schedule "${params.name}" of queue "${params.queue}" is ended` };
    },
  }),
];

/** A schedule without its payload. */
function shown({ payload: _payload, ...record }: ScheduleRecord): object {
  return { ...record, next: nextTicks(record.cron, record.timezone, record.nextAt, SHOWN) };
}
