import { InvalidInput } from '../../base/errors.ts';
import { checkOptions, suggest } from '../../base/options/options.ts';
import { show } from '../../base/options/refusal.ts';
import { isObject } from '../../base/options/shape.ts';
import { compact, type Producer } from '../enqueue.ts';
import type { FlowRow, JobInput } from '../job-input.ts';
import { type AfterFailure, afterPolicy } from '../job-options.ts';

/** A checked node. It names the nodes that it comes after by their places. */
export interface FlowJob {
  readonly name: string;
  readonly row: FlowRow;
  readonly after: readonly number[];
  readonly jobs: readonly string[];
  readonly batches: readonly string[];
  readonly afterError: AfterFailure;
  readonly afterCancel: AfterFailure;
  /** 0 for a node without parents in the flow; otherwise one more than the highest layer of its parents. */
  readonly layer: number;
}

/** A node, and what it comes after, as the caller gave it. */
export interface GivenNode {
  readonly name: string;
  readonly row: FlowRow;
  readonly after: readonly unknown[];
  readonly afterError: AfterFailure | undefined;
  readonly afterCancel: AfterFailure | undefined;
}

const ID = /^[1-9]\d{0,18}$/;
/** On DynamoDB, an id may contain the queue. */
export const NAMED_ID: RegExp = /^(?:.+:)?[1-9]\d{0,18}$/s;

/** Checks the name of a node. @throws InvalidInput  it is no name, or has the form of a job's id */
export function readNodeName(value: unknown, field: string): string {
  if (typeof value === 'string' && value !== '' && value.length <= 200 && !ID.test(value)) return value;
  throw new InvalidInput(
    `${field}.name must be a text of 1 to 200 characters that is no number, but is ${show(value)}`,
    {
      field: `${field}.name`,
    },
  );
}

interface NodeInput extends Omit<JobInput, 'after'> {
  readonly name: unknown;
  readonly queue?: unknown;
  readonly after?: readonly unknown[];
}

/** Checks a node by the queue that it names. @throws InvalidInput */
export async function readNode(
  node: object | undefined,
  nth: number,
  producerOf: (queue: unknown, field: string) => Producer,
): Promise<GivenNode> {
  const field = `nodes[${nth}]`;
  if (!isObject(node)) throw new InvalidInput(`${field} must be an object such as { name, kind, payload }`, { field });
  const { name, queue, after = [], afterError, afterCancel, ...job } = node as unknown as NodeInput;
  const readName = readNodeName(name, field);
  if (!Array.isArray(after)) throw new InvalidInput(`${field}.after must be an array`, { field: `${field}.after` });
  const policy = checkOptions(`flow, ${field}`, { afterError, afterCancel }, afterPolicy);
  return { name: readName, after, ...policy, row: await producerOf(queue, field).node(job, nth, field) };
}

/**
 * The parameter of `pawl.queue_add_flow()`: nodes with the same parents are a group, and a group comes after the groups of its
 * parents.
 * @returns the text, and the names in the order of the ids in the function's answer
 * @throws InvalidInput  two nodes of one name, an unknown one, or a cycle, by its names
 */
export function flowText(given: readonly GivenNode[]): { text: string; names: string[] } {
  const nodes = inLayers(given);
  const groups = new Map<string, FlowJob[]>();
  for (const node of nodes) {
    const { row, layer, after, jobs, batches, afterError, afterCancel } = node;
    const same = JSON.stringify([layer, row.queue, row.shard, after, jobs, batches, afterError, afterCancel]);
    const group = groups.get(same);
    if (group === undefined) groups.set(same, [node]);
    else group.push(node);
  }
  const ordered = [...groups.values()].toSorted((a, b) => (a[0]?.layer ?? 0) - (b[0]?.layer ?? 0));
  const names = ordered.flatMap((group) => group.map(({ name }) => name));
  const place = new Map(names.map((name, nth) => [name, nth]));
  const heads = ordered.map((group) => head(group, (nth) => place.get(given[nth]?.name ?? '') ?? -1));
  const payloads = ordered.map((group) => `[${group.map(({ row }) => row.payload).join()}]`);
  const options = ordered.map((group) =>
    group.some(({ row }) => row.own !== undefined) ? group.map(({ row }) => row.own ?? null) : null,
  );
  return { text: `[${JSON.stringify(heads)},[${payloads.join()}],${JSON.stringify(options)}]`, names };
}

function head(group: readonly FlowJob[], placeOf: (nth: number) => number): object {
  const [first] = group;
  if (first === undefined) throw new Error('a group always has a node');
  const rows = group.map(({ row }) => row);
  return {
    queue: first.row.queue,
    shard: first.row.shard,
    declared: first.row.declared,
    n: rows.length,
    kinds: compact(rows.map(({ kind }) => kind.name)),
    priorities: compact(rows.map(({ priority }) => priority)),
    keys: rows.some(({ key }) => key !== null) ? rows.map(({ key }) => key) : null,
    runAt: rows.some(({ runAt }) => runAt !== null) ? rows.map(({ runAt }) => runAt) : null,
    delays: rows.some(({ delay }) => delay !== null) ? rows.map(({ delay }) => delay) : null,
    after: first.after.map(placeOf),
    jobs: first.jobs,
    batches: first.batches,
    afterError: first.afterError,
    afterCancel: first.afterCancel,
  };
}

/** @throws InvalidInput  like {@link arrangeNodes} */
export function inLayers(given: readonly GivenNode[], ids: RegExp = ID): FlowJob[] {
  const arranged = arrangeNodes(given, ids);
  return given.map(({ name, row, afterError = 'error', afterCancel = 'cancel' }, nth) => {
    const { after = [], jobs = [], batches = [], layer = 0 } = arranged[nth] ?? {};
    return { name, row, after, jobs, batches, afterError, afterCancel, layer };
  });
}

/** The name of a node, and what the node comes after. */
export type NamedNode = Pick<GivenNode, 'name' | 'after'>;

/**
 * The parents of each node, sorted, and its layer, which is higher than the layers of its parents.
 * @throws InvalidInput  two nodes of one name, an unknown one, or a cycle, by its names
 */
export function arrangeNodes(
  given: readonly NamedNode[],
  ids: RegExp = ID,
): { after: number[]; jobs: string[]; batches: string[]; layer: number }[] {
  const places = new Map<string, number>();
  for (const [nth, { name }] of given.entries()) {
    if (places.has(name))
      throw new InvalidInput(`two nodes of the flow are named "${name}"`, { field: `nodes[${nth}].name` });
    places.set(name, nth);
  }
  const parents = given.map((node, nth) => sortParents(node, nth, places, ids));
  const layers = layersOf(
    given,
    parents.map(({ after }) => after),
  );
  return parents.map((one, nth) => ({ ...one, layer: layers[nth] ?? 0 }));
}

/** Names of nodes, ids of jobs and batches. */
function sortParents(
  { name, after }: NamedNode,
  nth: number,
  places: ReadonlyMap<string, number>,
  ids: RegExp,
): { after: number[]; jobs: string[]; batches: string[] } {
  const found = { after: [] as number[], jobs: [] as string[], batches: [] as string[] };
  for (const one of new Set(after)) {
    const place = typeof one === 'string' ? places.get(one) : undefined;
    if (place !== undefined) found.after.push(place);
    else if (typeof one === 'string' && ids.test(one)) found.jobs.push(one);
    else if (isObject(one) && typeof one['batch'] === 'string') found.batches.push(one['batch']);
    else {
      const near = typeof one === 'string' ? suggest(one, places.keys()) : undefined;
      const advice =
        near === undefined ? 'name a node of the flow, the id of a job, or a batch' : `did you mean "${near}"?`;
      throw new InvalidInput(`node "${name}" comes after ${show(one)}, which is no node of the flow; ${advice}`, {
        field: `nodes[${nth}].after`,
      });
    }
  }
  found.after.sort((a, b) => a - b);
  return found;
}

/** The layer of each node. Iterative, because the recursion for a chain of ten thousand nodes would overflow the stack. */
function layersOf(given: readonly NamedNode[], after: readonly (readonly number[])[]): number[] {
  const layers: number[] = given.map(() => 0);
  const open = after.map((parents) => parents.length);
  const children: number[][] = given.map(() => []);
  for (const [nth, parents] of after.entries()) for (const parent of parents) children[parent]?.push(nth);
  const line = [...open.keys()].filter((nth) => open[nth] === 0);
  for (const nth of line) {
    for (const child of children[nth] ?? []) {
      layers[child] = Math.max(layers[child] ?? 0, (layers[nth] ?? 0) + 1);
      open[child] = (open[child] ?? 0) - 1;
      if (open[child] === 0) line.push(child);
    }
  }
  if (line.length < given.length) refuseCycle(given, after, open);
  return layers;
}

/**
 * Every remaining node has a parent among the remaining nodes, so a walk from parent to parent returns to a node that it has
 * passed.
 */
function refuseCycle(
  given: readonly NamedNode[],
  after: readonly (readonly number[])[],
  open: readonly number[],
): never {
  const passed: number[] = [];
  let nth = open.findIndex((left) => left > 0);
  while (!passed.includes(nth)) {
    passed.push(nth);
    nth = after[nth]?.find((parent) => (open[parent] ?? 0) > 0) ?? -1;
  }
  const cycle = [...passed.slice(passed.indexOf(nth)), nth].map((one) => `"${given[one]?.name}"`).join(' after ');
  throw new InvalidInput(`nodes of the flow come after each other in a cycle: ${cycle}`, { field: 'nodes' });
}
