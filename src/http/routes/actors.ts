import type { ActorExplanation, ActorTransition } from '../../actor/index.ts';
import { InvalidInput, NotFound } from '../../base/errors.ts';
import { isObject } from '../../base/options/shape.ts';
import { pageOf, readIdCursor, writeCursor } from '../protocol/cursor.ts';
import { anything, choice, duration, flag, id, integer, maybe, text } from '../protocol/field.ts';
import { AFTER, type AnyRoute, type Call, route } from '../protocol/route.ts';
import { errorOf, type Origin, payloadOf, quotingError } from '../redaction/hidden.ts';

const STATUSES = ['running', 'due', 'napping', 'hibernating', 'backing off', 'paused', 'held', 'final'] as const;
const actor = { id: id('the id of an actor') };
const type = text({ max: 100, about: 'a type of actors' });

/** Actors: types and their machines, instances, and what wakes, pauses and ends them. */
export const actorRoutes: readonly AnyRoute[] = [
  route({
    method: 'GET',
    path: '/actor-types',
    id: 'listActorTypes',
    tag: 'actors',
    summary:
      'The types that the database knows, with their machines and how many actors are in each state; counts stop at 1,000.',
    permission: 'view',
    answers: 'ActorTypeList',
    sharedMs: 1000,
    run: async ({ services: { actors, live } }) => {
      const [types, { actors: counted }] = await Promise.all([actors.reads.types(), live.snapshot()]);
      return {
        items: types.map(({ id: _id, ...record }) => {
          const known = counted.find((one) => one.type === record.name);
          return { ...record, counts: known?.states ?? {}, workers: known?.workers ?? 0 };
        }),
      };
    },
  }),
  route({
    method: 'GET',
    path: '/actor-types/{type}/diagram',
    id: 'actorDiagram',
    tag: 'actors',
    summary: 'The machine of a type as Mermaid text or SVG.',
    permission: 'view',
    params: { type },
    query: {
      format: choice(['mermaid', 'svg'], undefined, 'mermaid'),
      counts: flag('with how many actors are in each state'),
    },
    answers: 'Json',
    run: async ({ params, query: { format, counts }, services: { actors } }) => {
      const drawn = await actors.reads.diagram(params.type, { format, counts });
      const media = format === 'svg' ? 'image/svg+xml' : 'text/plain';
      return new Response(drawn, { headers: { 'content-type': `${media}; charset=utf-8` } });
    },
  }),
  route({
    method: 'GET',
    path: '/actors',
    id: 'listActors',
    tag: 'actors',
    summary: 'Actors, newest first.',
    permission: 'view',
    query: {
      type: maybe(type),
      state: maybe(text({ max: 100 })),
      status: maybe(choice(STATUSES)),
      parent: maybe(id('only the children of this one')),
      where: maybe(
        text({ about: 'with type: values of fields in its index, as JSON: {"customer":"c-7"}. Needs payload:read' }),
      ),
      final: flag('those that are final, too'),
      limit: integer({ min: 1, max: 200, default: 50 }),
      after: maybe(text({ about: AFTER })),
    },
    answers: 'ActorList',
    sharedMs: 1000,
    run: async ({ query: { limit, after, where, ...filter }, who, services: { actors, redaction } }) => {
      if (where !== undefined) redaction.requireSearch(who);
      const rows = await actors.reads.list({
        ...filter,
        where: where === undefined ? undefined : whereOf(where),
        limit: limit + 1,
        before: placeOf(after)?.toString(),
      });
      const { items, after: next } = pageOf(rows, limit, (row) => writeCursor(row.id));
      return { items: items.map((row) => ({ ...row, error: errorOf(row.error, fieldsOf(row)) })), after: next };
    },
  }),
  route({
    method: 'GET',
    path: '/actors/{id}',
    id: 'getActor',
    tag: 'actors',
    summary: 'One actor: where it is, what it holds, why it does not run, and its history.',
    permission: 'view',
    params: actor,
    answers: 'ActorDetail',
    run: async ({ params, who, services }) => {
      checkId(params.id);
      const { actors } = services;
      const [{ fields, result, ...record }, explanation, history] = await Promise.all([
        actors.reads.get(params.id),
        actors.reads.explain(params.id),
        actors.reads.history(params.id),
      ]);
      const of = fieldsOf(record);
      return {
        ...record,
        error: errorOf(record.error, of),
        fields: payloadOf(fields, of),
        result: payloadOf(result, of),
        payloadHidden: !who.permissions.has('payload:read'),
        explanation: explained(explanation, of),
        history: history.map((move) => shownMove(move, of)),
        hasProgram: services.hasProgramOf(record.type),
      };
    },
  }),
  route({
    method: 'GET',
    path: '/actors/{id}/history',
    id: 'listActorHistory',
    tag: 'actors',
    summary: 'Moves and failures of an actor, newest first, for as long as its history is kept.',
    permission: 'view',
    params: actor,
    query: { limit: integer({ min: 1, max: 1000, default: 100 }), after: maybe(text({ about: AFTER })) },
    answers: 'ActorHistoryList',
    run: async ({ params, query: { limit, after }, services: { actors } }) => {
      checkId(params.id);
      const before = placeOf(after);
      const [{ type: queue }, rows] = await Promise.all([
        actors.reads.get(params.id),
        actors.reads.history(params.id, { limit: limit + 1, before }),
      ]);
      const of = { queue, kind: 'fields' };
      const { items, after: next } = pageOf(rows.toReversed(), limit, ({ epoch }) => writeCursor(String(epoch)));
      return { items: items.map((move) => shownMove(move, of)), after: next };
    },
  }),
  route({
    method: 'GET',
    path: '/actors/{id}/fields',
    id: 'listActorFields',
    tag: 'actors',
    summary:
      'What turns of an actor changed in its fields, newest first: before and after each. Empty unless its type declares fieldHistory.',
    permission: 'view',
    params: actor,
    query: { limit: integer({ min: 1, max: 200, default: 50 }), after: maybe(text({ about: AFTER })) },
    answers: 'ActorFieldsList',
    run: async ({ params, query: { limit, after }, services: { actors } }) => {
      checkId(params.id);
      const before = placeOf(after);
      const [record, rows] = await Promise.all([
        actors.reads.get(params.id),
        actors.reads.fieldHistory(params.id, { limit: limit + 1, before }),
      ]);
      const of = fieldsOf(record);
      const { items, after: next } = pageOf(rows, limit, ({ epoch }) => writeCursor(String(epoch)));
      const shown = items.map((change) => ({
        ...change,
        before: payloadOf(change.before, of),
        after: payloadOf(change.after, of),
      }));
      return { items: shown, after: next };
    },
  }),
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
    summary: 'Has its next turn begin now, in whatever process takes its type; false when one runs, or it is final.',
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
      'Runs one turn now, due or not, paused or not, in this process, and answers what came of it. Needs its program: createHttp({ actors }).',
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

/** Fields, results and errors of actors are of the queue that is their type, and of the kind "fields". */
function fieldsOf({ type: queue }: { readonly type: string }): Origin {
  return { queue, kind: 'fields' };
}

function shownMove(move: ActorTransition, of: Origin): object {
  return { ...move, error: errorOf(move.error, of) };
}

function explained({ reasons, ...rest }: ActorExplanation, of: Origin): object {
  const shown = reasons.map((reason) =>
    /^its last (turn|\d+ turns) failed/.test(reason) ? quotingError(reason, of) : reason,
  );
  return { ...rest, reasons: shown };
}

/** @throws InvalidInput  it is no object */
function patchOf(patch: unknown): Readonly<Record<string, unknown>> | undefined {
  if (patch === null) return undefined;
  if (isObject(patch) && !Array.isArray(patch)) return patch;
  throw new InvalidInput('patch must be an object of fields', { field: 'patch' });
}

/** Values of fields, as JSON. @throws InvalidInput */
function whereOf(where: string): Readonly<Record<string, string | number | boolean>> {
  try {
    return JSON.parse(where) as Readonly<Record<string, string | number | boolean>>;
  } catch (cause) {
    throw new InvalidInput('where must be JSON, such as {"customer":"c-7"}', { field: 'where', cause });
  }
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

/** Where the page before ended: an id or an epoch. @throws InvalidInput  that is none */
function placeOf(after: string | undefined): number | undefined {
  if (after === undefined) return undefined;
  const place = Number(readIdCursor(after));
  if (!Number.isSafeInteger(place)) throw new InvalidInput('that is no cursor of this list', { field: 'after' });
  return place;
}

/** Actors have ids that a number holds. @throws NotFound */
function checkId(value: string): void {
  if (!Number.isSafeInteger(Number(value))) throw new NotFound(`there is no actor ${value}`);
}
