import { Conflict, NotFound, NotSupported } from '../../../base/errors.ts';
import { creation, written } from '../../../engine/dynamodb/index.ts';
import type { ActorBackend } from '../../backend.ts';
import { lineFor, wakeWrite } from '../database.ts';
import { type ActorHead, ALONE, F, unchanged } from '../heads/head.ts';
import { STATE_PAUSED } from '../heads/wake.ts';
import { headOf, transitionOf } from '../rows.ts';
import type { DynamoActorStore } from '../store.ts';
import { deadlineOf, deadlineTag, lateWrite } from '../work/deadlines.ts';
import { lostTag } from '../work/rescue.ts';

/** The calls of operators for single actors on DynamoDB. */
export class DynamoActorOperator {
  readonly #store: DynamoActorStore;

  constructor(store: DynamoActorStore) {
    this.#store = store;
  }

  /** Pauses an actor that exists. @returns whether it was not paused before */
  async pause(actor: number): Promise<boolean> {
    const { rows } = this.#store;
    const now = await rows.engine.serviceTime(rows.limits);
    const after = await rows.decide(headOf(actor), (fields) =>
      fields[F.createdAt] === undefined || fields[F.pausedAt] !== undefined
        ? undefined
        : { expect: unchanged({ fields }, [F.pausedAt, F.epoch]), set: { [F.pausedAt]: now } },
    );
    return after !== undefined;
  }

  /**
   * Ends the pause of an actor. If there is none, lets go an actor that is held because its processes died. One transaction writes the head and the
   * wake row. If an actor is held for another reason, a program that knows its state lets it go, or the end of the pause of that state.
   * @returns whether the actor was paused or held so
   */
  async resume(actor: number): Promise<boolean> {
    for (let tries = 0; tries < 20; tries += 1) {
      const { head } = await this.#store.rows.look(actor);
      if (head === undefined) throw new NotFound(`there is no actor ${actor}`);
      if (!head.isPaused && !isPoison(head)) return false;
      const set = head.isPaused ? { [F.pausedAt]: null } : { [F.held]: null, [F.lost]: null };
      if (!(await this.#wakeWith(actor, head, set, !head.isPaused))) continue;
      if (!head.isPaused) await this.#store.pages.resolve(lostTag(actor));
      return true;
    }
    throw new NotSupported(`actor ${actor} changed during each attempt to resume it; try again`);
  }

  /** Makes an actor due now, in any process that takes its type. */
  async retry(actor: number): Promise<boolean> {
    for (let tries = 0; tries < 20; tries += 1) {
      const { head } = await this.#store.rows.look(actor);
      if (head === undefined) throw new NotFound(`there is no actor ${actor}`);
      if (head.worker !== 0 || head.isFinal) return false;
      if (head.held !== undefined) throw new Conflict(`actor ${actor} is held: ${head.held}; ${remedyOf(head)}`);
      if (await this.#wakeWith(actor, head, { [F.floorAt]: null }, true)) return true;
    }
    return false;
  }

  /** Moves an actor into another state, as a new visit. A turn that runs is fenced off. */
  async move(
    { actor, epoch, runs, state, reason, version }: MoveRequest,
    fields: string | undefined,
  ): Promise<boolean> {
    const { rows, types } = this.#store;
    const { head } = await rows.look(actor);
    if (head === undefined) throw new NotFound(`there is no actor ${actor}`);
    // If a turn ran when the caller read the actor, and was committed since, the fields are others.
    if (head.epoch !== epoch || head.isFinal || (runs && head.worker === 0)) return false;
    const type = await types.withId(head.type);
    const now = await rows.engine.serviceTime(rows.limits);
    const set: Record<string, string | number | null> = {
      [F.epoch]: epoch + 1,
      [F.visit]: head.visit + 1,
      [F.state]: state,
      [F.enteredAt]: now,
      [F.wakeAt]: now,
      [F.attempt]: 0,
    };
    const deadlineMs = deadlineOf(type, state);
    set[F.deadlineAt] = deadlineMs === undefined ? null : now + deadlineMs;
    const late =
      deadlineMs === undefined
        ? []
        : [lateWrite(type, { at: now + deadlineMs, actor, visit: head.visit + 1, epoch: epoch + 1 })];
    for (const name of [F.worker, F.signal, F.floorAt, F.timers, F.lost, F.held, F.late, F.error, F.cause])
      set[name] = null;
    if (fields !== undefined) set[F.fields] = fields;
    if (version !== undefined) set[F.version] = version;
    const expect = { ...unchanged(head, [F.epoch, F.worker]), [F.finishedAt]: null };
    const row = { at: now, actor, kind: 'time', epoch: epoch + 1, name: String(epoch + 1) } as const;
    const told = creation({ t: now, o: head.state, s: state, r: `moved: ${reason}`, a: 0 });
    const isDone = await rows.together([
      { key: headOf(actor), written: written({ expect, set }) },
      { key: transitionOf(actor, epoch + 1), written: told },
      wakeWrite(lineFor(type.id, actor, type.shards), row),
      ...late,
    ]);
    if (isDone) this.#store.notify();
    const over = isDone ? [deadlineTag(actor), lostTag(actor), `actor-mistake:${actor}`] : [];
    for (const tag of over) await this.#store.pages.resolve(tag);
    return isDone;
  }

  /** Changes the head, with a wake row. @param isNow  the actor is due now; else at the time of the head, or at once if a signal came */
  async #wakeWith(
    actor: number,
    head: ActorHead,
    set: Readonly<Record<string, string | number | null>>,
    isNow: boolean,
  ): Promise<boolean> {
    const { rows, types } = this.#store;
    const type = await types.withId(head.type);
    const now = await rows.engine.serviceTime(rows.limits);
    const isAwake = isNow || (head.signal && head.worker === 0);
    const at = isAwake ? now : head.wakeAt;
    const change = {
      expect: { ...unchanged(head, [F.epoch, F.worker, F.pausedAt, F.held, F.signal]), [F.finishedAt]: null },
      set: { ...set, ...(head.worker === 0 && { [F.signal]: null }), ...(isAwake && { [F.wakeAt]: now }) },
    };
    const lost = F.lost in set ? 0 : head.lost;
    const line = lineFor(type.id, actor, type.shards, lost === ALONE);
    const row = { actor, kind: 'time', epoch: head.epoch, name: `hand${now}` } as const;
    const isDone = await rows.together([
      { key: headOf(actor), written: written(change) },
      ...(at === undefined || head.worker !== 0 ? [] : [wakeWrite(line, { ...row, at })]),
    ]);
    if (isDone) this.#store.notify();
    return isDone;
  }
}

/** The operator, as a backend needs it. */
export function dynamoOperator(operator: DynamoActorOperator, store: DynamoActorStore): ActorBackend['operator'] {
  const { questions } = store;
  return {
    retry: (actor) => operator.retry(actor),
    move: (request, fields) => operator.move(request, fields),
    ask: async (head, payload) => {
      const id = await questions.ask(head, payload);
      if (id !== undefined) store.notify();
      return id;
    },
    lookForAnswer: (id) => questions.look(id),
    endQuestion: (id) => questions.end(id),
    // No notification comes from other processes. Each check is a read or two, so checks become rarer with time.
    lookAfterMs: (waitedMs) => Math.min(500, Math.max(25, waitedMs / 4)),
    listen: (_, handler) => Promise.resolve(questions.listen(handler)),
    indexes: () => Promise.resolve([]),
    fillIndex: () => Promise.resolve(),
  };
}

/** Whether the actor is held because its processes died. */
function isPoison({ held, lost }: ActorHead): boolean {
  return held !== undefined && lost > ALONE;
}

/** How an operator lets a held actor go. */
function remedyOf(head: ActorHead): string {
  if (head.held === STATE_PAUSED) return 'resume the state first';
  return isPoison(head) ? 'resume it first' : 'start a program that knows its state, or move it to another one';
}

interface MoveRequest {
  readonly actor: number;
  readonly epoch: number;
  readonly runs: boolean;
  readonly state: string;
  readonly reason: string;
  readonly version: number | undefined;
}
