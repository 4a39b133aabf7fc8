import type pg from 'pg';
import { plantSql } from '../plants/plant.ts';

/** Changes a function of the database. */
type Change = readonly [name: string, from: RegExp | string, to: string];

/** Bugs, named by the behaviour of the actors. */
export const PLANTS = [
  'a commit is believed, whatever worker sends it',
  'a commit leads elsewhere',
  'a raise that comes with others is lost',
  'a child is counted twice',
  'an epoch stands still',
  'a message is written twice',
  'a message is lost',
  'a parent is not told',
  'what was to be kept is not',
  'a failed turn moves on',
] as const;

export type PlantName = (typeof PLANTS)[number];

const ALL: Readonly<Record<PlantName, Change>> = {
  'a commit is believed, whatever worker sends it': [
    'actor_commit',
    'a.epoch = t.epoch and (a.worker = p_worker or a.tx_worker = p_worker)',
    'true',
  ],
  'a commit leads elsewhere': [
    'actor_commit',
    'state = coalesce(t.to_state, a.state)',
    `state = case when t.to_state = 'packing' then 'waiting' else coalesce(t.to_state, a.state) end`,
  ],
  'a raise that comes with others is lost': ['actor_absorb_of', 'sum(g.n) as n', 'max(g.n) as n'],
  'a child is counted twice': [
    'actor_absorb_of',
    'children = a.children + w.children',
    'children = a.children + 2 * w.children',
  ],
  'an epoch stands still': ['actor_take', 'epoch = a.epoch + 1', 'epoch = a.epoch'],
  'a message is written twice': [
    'actor_send_json',
    `values (v_actor, v_part[1] ->> 'name', v_part[2])`,
    `values (v_actor, v_part[1] ->> 'name', v_part[2]), (v_actor, v_part[1] ->> 'name', v_part[2])`,
  ],
  'a message is lost': ['actor_send_json', /insert into pawl\.actor_message[^;]*;/, ''],
  'a parent is not told': [
    'actor_commit',
    `where w.kind = 'done'\n    returning type`,
    'where false\n    returning type',
  ],
  'what was to be kept is not': ['actor_remember', /insert into pawl\.actor_effect[^;]*;/, ''],
  'a failed turn moves on': [
    'actor_commit',
    `state = coalesce(t.to_state, a.state)`,
    `state = case when t.kind = 'failed' and a.state = 'open' then 'held' else coalesce(t.to_state, a.state) end`,
  ],
};

export async function plantInDatabase(plant: string, eye: pg.Pool): Promise<void> {
  const [name, from, to] = ALL[readPlant(plant)];
  await plantSql(eye, name, (source) => source.replace(from, to));
}

/** @throws Error  there is no such plant */
export function readPlant(name: string): PlantName {
  const found = PLANTS.find((each) => each === name);
  if (found === undefined) throw new Error(`there is no plant "${name}"; there are ${PLANTS.join(', ')}`);
  return found;
}
