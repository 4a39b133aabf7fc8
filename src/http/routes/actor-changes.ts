import { InvalidInput } from '../../base/errors.ts';
import { isObject } from '../../base/options/shape.ts';
import { anything, duration, id, integer, maybe, text } from '../protocol/field.ts';
import { type AnyRoute, type Call, route } from '../protocol/route.ts';
import { errorOf, payloadOf } from '../redaction/hidden.ts';
import { checkId, fieldsOf } from './actors.ts';

const actor = { id: id('the id of an actor') };
const type = text({ max: 100, about: 'a type of actors' });

/** Actors: the requests that wake, ask, move, pause and end them. */
export const actorChanges: readonly AnyRoute[] = [
  route({
    method: 'POST',
    path: '/actors/{id}/incr',
    id: 'incrActor',
    tag: 'actors',
    summary: 'Raises a semaphore, which wakes the actor.',
    permission: 'actor:signal',
    params: actor,
    body: { semaphore: text({ max: 100 }), by: integer({ min: 1, max: 1_000_000, default: 1 }) },
    answers: 'Raised',
    target: ({ params, body }) => `semaphore ${body.semaphore} of actor ${params.id}`,
    run: async ({ params, body, services: { actors }, effects }) => {
      checkId(params.id);
      const { semaphores, type: of } = await semaphoresOf(actors.reads, params.id);
      if (!semaphores.includes(body.semaphore)) {
        throw new InvalidInput(
          `type "${of}" has no semaphore "${body.semaphore}"; it has ${semaphores.join(', ') || 'none'}`,
          {
            field: 'semaphore',
          },
        );
      }
      return { raised: await effects.actors.incr<string>(params.id, body.semaphore, { n: body.by }) };
    },
  }),
  route({
    method: 'POST',
    path: '/actors/{id}/messages',
    id: 'sendToActor',
    tag: 'actors',
    summary: 'Sends a message, which wakes the actor.',
    permission: 'actor:signal',
    params: actor,
    body: { name: text({ max: 200 }), payload: anything('any JSON') },
    answers: 'Raised',
    target: ({ params, body }) => `message ${body.name} to actor ${params.id}`,
    run: async ({ params, body, effects: { actors } }) => {
      checkId(params.id);
      return { raised: await actors.send(params.id, body.name, body.payload) };
    },
  }),
  route({
    method: 'POST',
    path: '/actors/{id}/ask',
    id: 'askActor',
    tag: 'actors',
    summary:
      'Sends a message and waits for the answer that the body gives with message.reply(): 504 when none comes in time, 409 when none can come.',
    permission: 'actor:signal',
    params: actor,
    body: {
      name: text({ max: 200 }),
      payload: anything('any JSON'),
      wait: duration({ min: '10ms', max: '1m', default: '30s', about: 'how long to wait for the answer' }),
    },
    answers: 'Answer',
    target: ({ params, body }) => `message ${body.name} to actor ${params.id}`,
    run: async ({ params, body: { name, payload, wait }, who, request, services, effects: { actors } }) => {
      checkId(params.id);
      const record = await services.actors.reads.get(params.id);
      const answer = await actors.ask(params.id, name, payload, { wait, signal: request.signal });
      return { answer: payloadOf(answer, fieldsOf(record)), payloadHidden: !who.permissions.has('payload:read') };
    },
  }),
  route({
    method: 'POST',
    path: '/actors/{id}/retry',
    id: 'retryActor',
    tag: 'actors',
    summary:
      'Makes its next turn begin now, in any process that runs its type; false if a turn runs, or the actor is final.',
    permission: 'actor:signal',
    params: actor,
    answers: 'Retried',
    target: ({ params }) => `actor ${params.id}`,
    run: async ({ params, effects: { actors } }) => {
      checkId(params.id);
      return { retried: await actors.retry(params.id) };
    },
  }),
  route({
    method: 'POST',
    path: '/actors/{id}/move',
    id: 'moveActor',
    tag: 'actors',
    summary:
      'Puts it into another state, declared transition or not, and changes the fields of the patch. A turn that runs is fenced off. Where the server has the program, its schema checks the fields.',
    permission: 'actor:move',
    params: actor,
    body: {
      state: text({ max: 100 }),
      patch: anything('an object of fields'),
      reason: text({ max: 500, about: 'for its history' }),
    },
    answers: 'Done',
    target: ({ params, body }) => `actor ${params.id} to "${body.state}": ${body.reason}`,
    run: async ({ params, body: { state, patch, reason }, effects: { actors } }) => {
      checkId(params.id);
      await actors.move(params.id, state, patchOf(patch), { reason });
      return { done: `actor ${params.id} is in "${state}"` };
    },
  }),
  route({
    method: 'POST',
    path: '/actors/{id}/work',
    id: 'workActor',
    tag: 'actors',
    summary:
      'Runs one turn now, due or not, paused or not, in this process, and answers its outcome. Needs its program: createHttp({ actors }).',
    permission: 'actor:work',
    params: actor,
    answers: 'Turn',
    target: ({ params }) => `actor ${params.id}`,
    run: async ({ params, services }) => {
      checkId(params.id);
      const { type: of } = await services.actors.reads.get(params.id);
      const { kind, from, to, error } = await services.workOn(params.id, of);
      const text = error === undefined ? null : messageOf(error);
      return { kind, from, to, error: errorOf(text, { queue: of, kind: 'fields' }) };
    },
  }),
  route({
    method: 'POST',
    path: '/actors/{id}/destroy',
    id: 'destroyActor',
    tag: 'actors',
    summary: 'Asks an actor to end, from whatever state it is in.',
    permission: 'actor:destroy',
    params: actor,
    answers: 'Raised',
    target: ({ params }) => `actor ${params.id}`,
    run: async ({ params, effects: { actors } }) => {
      checkId(params.id);
      return { raised: await actors.destroy(params.id) };
    },
  }),
  ...(['pause', 'resume'] as const).flatMap((verb) => pausing(verb)),
];

function pausing(verb: 'pause' | 'resume'): AnyRoute[] {
  return [
    route({
      method: 'POST',
      path: `/actors/{id}/${verb}`,
      id: `${verb}Actor`,
      tag: 'actors',
      summary: verb === 'pause' ? 'Lets no turn of it begin; what comes is kept.' : 'Lets turns begin again.',
      permission: 'actor:pause',
      params: actor,
      answers: 'Done',
      target: ({ params }) => `actor ${params.id}`,
      run: async ({ params, effects: { actors } }) => {
        checkId(params.id);
        await actors[verb](params.id);
        return { done: `actor ${params.id} is ${verb}d` };
      },
    }),
    route({
      method: 'POST',
      path: `/actor-types/{type}/${verb}`,
      id: `${verb}ActorType`,
      tag: 'actors',
      summary: `The same for a whole type, or one state of it.`,
      permission: 'actor:pause',
      params: { type },
      body: { state: maybe(text({ max: 100 })) },
      answers: 'Done',
      target: ({ params, body }) => `type ${params.type}${body.state === undefined ? '' : `, state ${body.state}`}`,
      run: async ({ params, body, effects: { actors } }) => {
        await actors[verb]({ type: params.type, ...(body.state === undefined ? {} : { state: body.state }) });
        return {
          done: `type "${params.type}"${body.state === undefined ? '' : `, state "${body.state}"`} is ${verb}d`,
        };
      },
    }),
  ];
}

/** @throws InvalidInput  the value is no object */
function patchOf(patch: unknown): Readonly<Record<string, unknown>> | undefined {
  if (patch === null) return undefined;
  if (isObject(patch) && !Array.isArray(patch)) return patch;
  throw new InvalidInput('patch must be an object of fields', { field: 'patch' });
}

function messageOf(error: unknown): string {
  return error instanceof Error ? error.message : String(error);
}

async function semaphoresOf(
  admin: Call['services']['actors']['reads'],
  actorId: string,
): Promise<{ readonly type: string; readonly semaphores: readonly string[] }> {
  const [record, types] = await Promise.all([admin.get(actorId), admin.types()]);
  const of = types.find(({ name }) => name === record.type);
  return { type: record.type, semaphores: of?.semaphores ?? [] };
}
