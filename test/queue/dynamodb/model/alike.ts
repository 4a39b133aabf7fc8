// States of the model that are alike: they have one name, and are explored once.
import type { Fields } from '../../../../src/engine/dynamodb/index.ts';
import { carriedOut, HEAD, type QueueState, RESTING, type Worker, type Write, wasCarriedOut } from './model.ts';

/**
 * The text of a state. Alike are states that differ
 *
 * - in which worker is which, since all run the same program
 * - in how large fences, versions and epochs are: they are only compared for being equal, and the next one is made by adding 1
 * - in what the dead were doing
 * - in a write whose condition does not hold: no field that a condition names ever has an old value again, so it is refused for good; but
 *   where heads of keys are removed, that is for the model to show
 */
export function nameOfState(state: QueueState): string {
  const rows = Object.fromEntries(Object.entries(state.rows).map(([name, fields]) => [name, sorted(fields)]));
  const workers = state.workers
    .map((worker) => settledDown(state, worker))
    .map((worker) => ({ worker, order: orderOf(state, worker) }))
    .sort((a, b) => (a.order < b.order ? -1 : Number(a.order > b.order)))
    .map(({ worker }) => worker);
  const flying = state.flying.filter(
    (request) => carriedOut(state, request) !== undefined || mayComeAgain(state, request),
  );
  const producers = state.producers.map((each) => (each.isDead ? { ...each, at: 'begin', after: [] } : each));
  const text = JSON.stringify({ ...state, rows, workers, flying, producers, alive: [] });
  const ids = new Map([...new Set(text.match(ID))].map((id, index) => [id, String(FIRST + index + 1)]));
  const alive = state.alive.map((id) => Number(ids.get(String(id)))).sort((a, b) => a - b);
  return COUNTERS.reduce(
    close,
    text.replace(ID, (id) => ids.get(id) ?? id),
  ).replace('"alive":[]', `"alive":${JSON.stringify(alive)}`);
}

function mayComeAgain({ pruner }: QueueState, { row }: Write): boolean {
  return pruner !== null && row !== HEAD;
}

const FIRST = 7000;
/** The id of a worker, wherever it stands: no other number of a state is as large, except places of jobs, which are larger or 64 × n. */
const ID = /(?<![\d.])70\d\d(?![\d.])/g;

/** Where each counter stands: what comes before its number. */
const COUNTERS: readonly RegExp[] = [
  // The epoch of a key is compared to tokens of claims.
  /("f":|"[cb]:|"t":|"token":|"w":"\d+ |"e":|"epoch":)(\d+)/g,
  /("v":)(\d+)/g,
];

/** Makes the distances between values as small as they can be: 1 stays 1, larger ones are 2. */
function close(text: string, counter: RegExp): string {
  const values = [...new Set([...text.matchAll(counter)].map(([, , value]) => Number(value)))].sort((a, b) => a - b);
  const closer = new Map<number, number>();
  let [before, after] = [0, 0];
  for (const value of values) {
    after += Math.min(2, value - before);
    before = value;
    closer.set(value, after);
  }
  return text.replace(counter, (_, place: string, value: string) => `${place}${closer.get(Number(value))}`);
}

/** What a worker does next when it can do only one thing, which changes nothing else. */
function settledDown(state: QueueState, worker: Worker): Worker {
  const { request } = worker;
  if (worker.isDead) return { ...worker, ...RESTING, isTired: false };
  if (request === null || request.row !== HEAD) return worker;
  const fields = state.rows[request.row] ?? {};
  if (carriedOut(state, request) !== undefined || wasCarriedOut(fields, request, worker)) return worker;
  return { ...worker, ...RESTING };
}

function orderOf({ alive }: QueueState, worker: Worker): string {
  return `${alive.includes(worker.id)} ${JSON.stringify(worker).replace(ID, '')}`;
}

function sorted(fields: Fields): Fields {
  return Object.fromEntries(Object.entries(fields).sort(([a], [b]) => (a < b ? -1 : 1)));
}
