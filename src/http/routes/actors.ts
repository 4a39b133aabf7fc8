import type { ActorExplanation, ActorTransition } from '../../actor/index.ts';
import { InvalidInput, NotFound } from '../../base/errors.ts';
import { isObject } from '../../base/options/shape.ts';
import { pageOf, readIdCursor, writeCursor } from '../protocol/cursor.ts';
import { choice, flag, id, integer, maybe, text } from '../protocol/field.ts';
import { AFTER, type AnyRoute, route } from '../protocol/route.ts';
import { errorOf, payloadOf, quotingError, type ValueOrigin } from '../redaction/hidden.ts';

const STATUSES = ['running', 'due', 'napping', 'hibernating', 'backing off', 'paused', 'held', 'final'] as const;
const actor = { id: id('the id of an actor') };
const type = text({ max: 100, about: 'a type of actors' });

/** Actors: types and their machines, instances, and their history. */
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
];

/** Fields, results and errors of actors belong to the queue with the name of their type, and to the kind "fields". */
export function fieldsOf({ type: queue }: { readonly type: string }): ValueOrigin {
  return { queue, kind: 'fields' };
}

function shownMove(move: ActorTransition, of: ValueOrigin): object {
  return { ...move, error: errorOf(move.error, of) };
}

function explained({ reasons, ...rest }: ActorExplanation, of: ValueOrigin): object {
  const shown = reasons.map((reason) =>
    /^its last (turn|\d+ turns) failed/.test(reason) ? quotingError(reason, of) : reason,
  );
  return { ...rest, reasons: shown };
}

/** Values of fields, as JSON. @throws InvalidInput */
function whereOf(where: string): Readonly<Record<string, string | number | boolean>> {
  const words = 'where must be an object as JSON, such as {"customer":"c-7"}';
  let fields: unknown;
  try {
    fields = JSON.parse(where);
  } catch (cause) {
    throw new InvalidInput(words, { field: 'where', cause });
  }
  // Any other value has no fields, so it would find all actors.
  if (!isObject(fields) || Array.isArray(fields)) throw new InvalidInput(words, { field: 'where' });
  return fields as Readonly<Record<string, string | number | boolean>>;
}

/** The end of the previous page: an id or an epoch. @throws InvalidInput  the value is neither */
function placeOf(after: string | undefined): number | undefined {
  if (after === undefined) return undefined;
  const place = Number(readIdCursor(after));
  if (!Number.isSafeInteger(place)) throw new InvalidInput('that is no cursor of this list', { field: 'after' });
  return place;
}

/** Ids of actors fit into a number. @throws NotFound */
export function checkId(value: string): void {
  if (!Number.isSafeInteger(Number(value))) throw new NotFound(`there is no actor ${value}`);
}
