import type { Transaction } from '../../engine/postgres/index.ts';
import type { Definition } from '../definition.ts';
import type { ClaimAnswer, ClaimedChains, ClaimedKeyBatch, ClaimedRun, Origin, QueueIds } from '../store.ts';
import { type Claim, Job, Unit, type UnitOwner } from './unit.ts';

/** Everything one claim brought, ready to run. */
export interface ClaimedUnits {
  readonly claims: readonly Claim[];
  /** Units to start from; a unit of a key leads to the next one by `next`. In order. */
  readonly units: readonly Unit[];
  /** Jobs in all. */
  readonly jobs: number;
  /** Units in all: as many handlers will be called. */
  readonly count: number;
}

/** What the units of one claim have in common. */
export interface ClaimContext {
  readonly shard: number;
  readonly definition: Definition;
  readonly registered: QueueIds;
  readonly owner: UnitOwner;
  /** With `hold: 'transaction'`, the transaction that holds the claim. */
  readonly tx?: Transaction | undefined;
}

export function hasJobs(answer: ClaimAnswer): boolean {
  return answer.rows.length > 0 || answer.keys.length > 0 || answer.lines !== undefined;
}

/** How many jobs an answer brought. */
export function countJobs(answer: ClaimAnswer): number {
  let jobs = answer.lines?.ids.length ?? 0;
  for (const row of answer.rows) jobs += row[2];
  for (const [, , fields] of answer.keys) jobs += fields.length / FIELDS;
  return jobs;
}

/** How many units an answer brought: a coalesced group is one, however many jobs it has. */
export function countUnits(answer: ClaimAnswer): number {
  let units = answer.lines?.ids.length ?? 0;
  for (const row of answer.rows) units += row[2];
  for (const [, , fields] of answer.keys) {
    const whole = new Set<number>();
    for (let at = 0; at < fields.length; at += FIELDS) {
      const unit = fields[at + 5];
      if (unit === undefined || unit === 0) units += 1;
      // Negative where only the newest one's payload is sent.
      else whole.add(Math.abs(Number(unit)));
    }
    units += whole.size;
  }
  return units;
}

/** Makes units of claimed rows: one a job, one a coalesced group, and a chain of them for each key. */
export function readClaim(answer: ClaimAnswer, holder: ClaimContext): ClaimedUnits {
  const claims = new Map<number, Claim>();
  const claimOf = (id: number): Claim => {
    let claim = claims.get(id);
    if (claim === undefined) {
      const processId = answer.processes?.[id] ?? '';
      const isAlone = answer.alone?.includes(id) ?? false;
      claim = { id, shard: holder.shard, processId, isAlone, left: 0 };
      claims.set(id, claim);
    }
    return claim;
  };
  const units: Unit[] = [];
  for (const row of answer.rows) addRun(units, row, claimOf(row[0]), holder);
  if (answer.lines !== undefined) addChains(units, answer.lines, claimOf(answer.lines.claim), holder);
  for (const row of answer.keys) units.push(toChain(row, claimOf, holder));
  return { claims: [...claims.values()], units, jobs: countJobs(answer), count: countUnits(answer) };
}

function addRun(
  units: Unit[],
  [, first, n, kind, attempt, origin, payloads]: ClaimedRun,
  claim: Claim,
  holder: ClaimContext,
): void {
  const held = { epoch: null, brokenBy: null, isCoalesced: false, tx: holder.tx };
  const name = nameOf(kind, holder);
  claim.left += n;
  for (let index = 0; index < n; index += 1) {
    const job = new Job(first + index, claim, attempt, origin, payloads[index]);
    units.push(new Unit(holder.owner, name, null, [job], held));
  }
}

/** One unit a job, each leading to the next one of its key. */
function addChains(units: Unit[], lines: ClaimedChains, claim: Claim, holder: ClaimContext): void {
  const held = { epoch: lines.epoch, brokenBy: null, isCoalesced: false, tx: holder.tx };
  const last: (Unit | undefined)[] = [];
  claim.left += lines.ids.length;
  for (const [index, id] of lines.ids.entries()) {
    const nth = lines.nth[index] ?? 0;
    const job = new Job(id, claim, 1, lines.origins[index] ?? 0, lines.payloads[index]);
    const unit = new Unit(
      holder.owner,
      nameOf(lines.kinds[index] ?? 0, holder),
      lines.keys[nth - 1] ?? '',
      [job],
      held,
    );
    const before = last[nth];
    if (before === undefined) units.push(unit);
    else before.next = unit;
    last[nth] = unit;
  }
}

/** Fields of one job in a row of a key, the last of which is its payload. */
const FIELDS = 8;
type KeyFields = [
  id: number,
  claim: number,
  kind: number,
  attempt: number,
  origin: Origin,
  unit: number,
  brokenBy: number,
];

/** Jobs of a key that run as one unit. */
interface Group {
  readonly kind: string;
  readonly jobs: Job[];
  readonly isCoalesced: boolean;
  brokenBy: number | null;
}

function toChain([key, epoch, fields]: ClaimedKeyBatch, claimOf: (id: number) => Claim, holder: ClaimContext): Unit {
  const groups: Group[] = [];
  const whole = new Map<number, Group>();
  let related = false;
  for (let at = 0; at < fields.length; at += FIELDS) {
    const [id, claimId, kindId, attempt, origin, together, brokenBy] = fields.slice(at, at + FIELDS - 1) as KeyFields;
    const { kind, unit } = asDeclared(nameOf(kindId, holder), together, holder);
    const claim = claimOf(claimId);
    claim.left += 1;
    const job = new Job(id, claim, attempt, origin, fields[at + FIELDS - 1]);
    let group = whole.get(Math.abs(together));
    if (group === undefined) {
      group = {
        kind,
        jobs: [],
        isCoalesced: unit > 0,
        brokenBy: null,
      };
      groups.push(group);
      if (unit > 0) whole.set(unit, group);
      related ||= (holder.definition.kinds.get(group.kind)?.after.length ?? 0) > 0;
    }
    group.jobs.push(job);
    if (brokenBy > 0) group.brokenBy = brokenBy;
  }
  const ordered = related ? inOrder(groups, holder.definition) : groups;
  let next: Unit | undefined;
  for (let at = ordered.length - 1; at >= 0; at -= 1) {
    const group = ordered[at];
    if (group === undefined) continue;
    const { kind, jobs, brokenBy, isCoalesced } = group;
    const unit = new Unit(holder.owner, kind, key, jobs, { epoch, brokenBy, isCoalesced, tx: holder.tx });
    unit.next = next;
    next = unit;
  }
  if (next === undefined) throw new Error('a claimed key always has a job');
  return next;
}

/**
 * How a kind's jobs run is for this program to say, where another version of it has declared something else. Its handler looks at
 * one job, if it does not coalesce; and where it wants payloads that were left out (`unit` is below 0: of the kind the newest
 * counts), the unit is left to the other version.
 */
function asDeclared(kind: string, unit: number, { definition }: ClaimContext): { kind: string; unit: number } {
  const coalesce = definition.kinds.get(kind)?.coalesce;
  if (unit < 0 && coalesce !== undefined && coalesce !== 'latest') {
    return { kind: `${kind}, as another version declares it: coalesce 'latest'`, unit: -unit };
  }
  return { kind, unit: coalesce === 'none' ? 0 : Math.abs(unit) };
}

/** The oldest that waits for none of the others, again and again. There is always one: `after` has no circles. */
function inOrder(groups: readonly Group[], { kinds }: Definition): Group[] {
  const left = [...groups];
  const ordered: Group[] = [];
  while (left.length > 0) {
    const index = left.findIndex(({ kind }) => {
      const after = kinds.get(kind)?.after ?? [];
      return after.length === 0 || !left.some((other) => after.includes(other.kind));
    });
    ordered.push(...left.splice(Math.max(index, 0), 1));
  }
  return ordered;
}

function nameOf(kind: number, { registered }: ClaimContext): string {
  return registered.kindName.get(kind) ?? `unknown kind ${kind}`;
}
