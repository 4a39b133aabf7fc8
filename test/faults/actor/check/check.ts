import type { Violation } from '../../plan.ts';
import { MACHINES } from '../declaration.ts';
import type { ActorHistory, Effect, Instance, Move } from '../history.ts';

/** Reasons of moves that a turn committed; others are of a rescue, a failure or a hold. */
const COMMITTED = new Set(['to', 'done']);

/** The events of the history that no actors which keep their promises can leave. */
export function checkActors(history: ActorHistory): Violation[] {
  const seen = new Observation(history);
  return [
    ...history.complaints,
    ...history.instances.flatMap((one) => checkOne(seen, one)),
    ...checkTurns(seen),
    ...checkOnce(history),
  ];
}

class Observation {
  readonly history: ActorHistory;
  readonly moves: ReadonlyMap<string, readonly Move[]>;
  readonly effects: ReadonlyMap<string, readonly Effect[]>;
  readonly children: ReadonlyMap<string, readonly Instance[]>;
  readonly endings: ReadonlySet<string>;
  readonly begun: ReadonlySet<string>;

  constructor(history: ActorHistory) {
    this.history = history;
    this.moves = grouped(history.moves, ({ actor }) => actor);
    this.effects = grouped(history.effects, ({ actor }) => actor);
    this.children = grouped(history.instances, ({ parent }) => parent ?? '');
    this.endings = new Set(history.endings.map(({ actor, epoch, to }) => `${actor} ${epoch} ${to}`));
    this.begun = new Set(history.begun.map(({ actor, epoch, state }) => `${actor} ${epoch} ${state}`));
  }

  story(actor: string): string[] {
    const moves = (this.moves.get(actor) ?? []).map(
      ({ epoch, from, to, reason, committedAt }) => `${committedAt} turn ${epoch}: ${from} to ${to} (${reason})`,
    );
    const effects = (this.effects.get(actor) ?? []).map(
      ({ epoch, state, kind, n, committedAt }) => `${committedAt} turn ${epoch}: ${kind} ${n} in ${state}`,
    );
    const begun = this.history.begun
      .filter((one) => one.actor === actor)
      .map(({ epoch, state }) => `begun: turn ${epoch} in ${state}`);
    return [...moves, ...effects, ...begun];
  }
}

function checkOne(seen: Observation, one: Instance): Violation[] {
  const rules = [
    ...checkMoves(seen, one),
    ...checkEffects(seen, one),
    ...checkFamily(seen, one),
    ...checkCounter(seen, one),
  ];
  return rules.map((rule) => ({ rule, about: `${one.type} ${one.id}`, story: seen.story(one.id) }));
}

function checkMoves({ moves, endings }: Observation, { id, type, state, epoch, isFinal }: Instance): string[] {
  const mine = moves.get(id) ?? [];
  const rules: string[] = [];
  let at: string | null = null;
  let last = -1;
  for (const move of mine) {
    if (move.from !== at) rules.push('each move begins where the last one ended');
    // The rescue that records the loss also holds the actor, at the same epoch.
    if (move.reason === 'held' ? move.epoch < last : move.epoch <= last) rules.push('epochs rise');
    last = move.epoch;
    if (move.from !== null && move.from !== move.to && !(MACHINES[type]?.[move.from] ?? []).includes(move.to)) {
      rules.push('an actor moves as it was declared');
    }
    const target = move.reason === 'done' ? 'done' : move.to;
    if (COMMITTED.has(move.reason) && !endings.has(`${id} ${move.epoch} ${target}`))
      rules.push('no move is made that no body made');
    if (!COMMITTED.has(move.reason) && move.from !== null && move.from !== move.to)
      rules.push('only a body moves an actor');
    at = move.to;
  }
  if (at !== state || epoch < last) rules.push('an actor is where its last move led');
  if (mine.filter(({ reason }) => reason === 'done').length !== (isFinal ? 1 : 0)) rules.push('an actor ends once');
  return rules;
}

/** Each commit with an effect has it exactly once, and no effect is without its commit. */
function checkEffects({ moves, effects }: Observation, { id, type }: Instance): string[] {
  const mine = moves.get(id) ?? [];
  const all = effects.get(id) ?? [];
  const rules: string[] = [];
  const written = all.filter(({ kind }) => kind === 'effect');
  for (const move of mine) {
    if (!COMMITTED.has(move.reason) || !hasEffect(type, move.from)) continue;
    if (written.filter(({ epoch }) => epoch === move.epoch).length !== 1)
      rules.push('each commit takes its effects along, once');
  }
  for (const { epoch, state } of written) {
    if (!mine.some((move) => move.epoch === epoch && move.from === state && COMMITTED.has(move.reason))) {
      rules.push('nothing takes effect without its commit');
    }
  }
  // Every statement that raises the epoch waits for the row that the guard has locked.
  for (const effect of all) {
    if (mine.some((move) => move.epoch > effect.epoch && move.committedAt < effect.committedAt)) {
      rules.push('nothing passes a guard that comes too late');
    }
  }
  return rules;
}

function hasEffect(type: string, state: string | null): boolean {
  return (type === 'order' && (state === 'open' || state === 'held')) || (type === 'item' && state === 'second');
}

function checkFamily({ children }: Observation, { id, type, items, result, isFinal }: Instance): string[] {
  if (type !== 'order' || !isFinal) return [];
  const mine = children.get(id) ?? [];
  const rules: string[] = [];
  if (mine.length !== items) rules.push('children are born with the commit that asks for them, once');
  if (mine.some((child) => !child.isFinal)) rules.push('no parent ends before its children');
  const results = Array.isArray(result) ? result.map(Number).toSorted((a, b) => a - b) : [];
  if (results.join() !== Array.from({ length: items }, (_, n) => n).join())
    rules.push('a parent sees the outcomes of its children');
  return rules;
}

/** Every raise counts once, and every message is read once. Those without an answer count at most once. */
function checkCounter({ history, effects }: Observation, { id, type, result, isFinal }: Instance): string[] {
  if (type !== 'counter' || !isFinal) return [];
  const asked = history.asked.filter(({ actor }) => actor === id);
  const raised = asked.filter(({ what }) => what === 'raise');
  const certain = raised.filter(({ isCertain }) => isCertain).length;
  const rules: string[] = [];
  if (Number(result) < certain) rules.push('no raise is lost');
  if (Number(result) > raised.length) rules.push('no raise counts twice');
  const read = (effects.get(id) ?? []).filter(({ kind }) => kind === 'message').map(({ n }) => n);
  const sent = asked.filter(({ what }) => what === 'send');
  if (new Set(read).size !== read.length) rules.push('no message is read twice');
  if (sent.some(({ n, isCertain }) => isCertain && !read.includes(n))) rules.push('no message is lost');
  if (read.some((n) => !sent.some((one) => one.n === n))) rules.push('no message is read that was not sent');
  return rules;
}

function checkTurns(seen: Observation): Violation[] {
  const { history, begun } = seen;
  const rules: Violation[] = [];
  const told = (rule: string, actor: string): number =>
    rules.push({ rule, about: `actor ${actor}`, story: seen.story(actor) });
  if (
    begun.size !== history.begun.length ||
    new Set(history.begun.map(({ actor, epoch }) => `${actor} ${epoch}`)).size !== begun.size
  ) {
    const twice = grouped(history.begun, ({ actor, epoch }) => `${actor} ${epoch}`);
    for (const [, all] of twice)
      if (all.length > 1) told('no two turns of an actor have one epoch', all[0]?.actor ?? '');
  }
  const there = new Set(history.instances.map(({ id }) => id));
  for (const id of history.orders) if (!there.has(id)) told('what was created is there', id);
  return rules;
}

/** A result that a turn of a visit has stored is not computed again in a later turn. An earlier turn may compute it again. */
function checkOnce({ onces }: ActorHistory): Violation[] {
  const kept = new Map<string, number>();
  for (const { actor, visit, epoch, how } of onces) {
    const key = `${actor} ${visit}`;
    if (how === 'kept') kept.set(key, Math.min(epoch, kept.get(key) ?? Infinity));
  }
  return onces.flatMap(({ actor, visit, epoch, how }): Violation[] => {
    if (how === 'kept' || epoch <= (kept.get(`${actor} ${visit}`) ?? Infinity)) return [];
    return [
      { rule: 'a kept effect is not run again', about: `actor ${actor}, visit ${visit}, turn ${epoch}`, story: [] },
    ];
  });
}

function grouped<T>(all: readonly T[], by: (one: T) => string): Map<string, T[]> {
  const groups = new Map<string, T[]>();
  for (const one of all) groups.set(by(one), [...(groups.get(by(one)) ?? []), one]);
  return groups;
}
