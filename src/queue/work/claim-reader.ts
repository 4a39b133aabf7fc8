import type { Transaction } from '../../engine/postgres/index.ts';
import type { Definition } from '../definition.ts';
import type { Origin } from '../job-options.ts';
import type { ClaimAnswer, ClaimedChains, ClaimedKey, ClaimedRun, QueueIds } from '../store.ts';
import { type Claim, Job } from './run/claimed-job.ts';
import { Unit, type UnitOwner } from './run/unit.ts';

/** The units of one claim, ready to run. */
export interface ClaimedUnits {
  readonly claims: readonly Claim[];
  /** The first units in order; a unit of a key leads to the next one by `next`. */
  readonly units: readonly Unit[];
  /** The number of all jobs. */
  readonly jobs: number;
  /** The number of all units, and so of the calls of handlers. */
  readonly count: number;
}

/** The state that the units of one claim share. */
export interface ClaimContext {
  readonly shard: number;
  readonly definition: Pick<Definition, 'kinds'>;
  readonly registered: Pick<QueueIds, 'kindName'>;
  readonly owner: UnitOwner;
  /** With `hold: 'transaction'`: the transaction that holds the claim. */
  readonly tx?: Transaction | undefined;
}

export function hasJobs(answer: ClaimAnswer): boolean {
  return answer.runs.length > 0 || answer.keys.length > 0 || answer.chains !== undefined;
}

/** The number of jobs in an answer. */
export function countJobs(answer: ClaimAnswer): number {
  return countSingle(answer) + countJobsOfKeys(answer);
}

/** The number of jobs of keys in an answer; each of them was a row. */
export function countJobsOfKeys({ keys }: ClaimAnswer): number {
  let jobs = 0;
  for (const { ids } of keys) jobs += ids.length;
  return jobs;
}

/** The number of units in an answer: a coalesced group is one, however many jobs it has. */
export function countUnits(answer: ClaimAnswer): number {
  let units = countSingle(answer);
  for (const { ids, units: numbers } of answer.keys) {
    units += numbers === undefined ? ids.length : countOfKey(numbers);
  }
  return units;
}

/** The number of jobs that never share a unit. */
function countSingle({ runs, chains }: ClaimAnswer): number {
  let jobs = chains?.ids.length ?? 0;
  for (const { n } of runs) jobs += n;
  return jobs;
}

function countOfKey(numbers: readonly (number | null)[]): number {
  const coalesced = new Set<number>();
  let single = 0;
  for (const number of numbers) {
    if (number === null) single += 1;
    else coalesced.add(number);
  }
  return single + coalesced.size;
}

/** Makes units from claimed rows: one for each job or coalesced group, and a chain of units for each key. */
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
  for (const run of answer.runs) addRun(units, run, claimOf(run.claim), holder);
  if (answer.chains !== undefined) addChains(units, answer.chains, claimOf(answer.chains.claim), holder);
  for (const key of answer.keys) units.push(toChain(key, claimOf, holder));
  return { claims: [...claims.values()], units, jobs: countJobs(answer), count: countUnits(answer) };
}

function addRun(
  units: Unit[],
  { first, n, kind, attempt, origin, payloads }: ClaimedRun,
  claim: Claim,
  holder: ClaimContext,
): void {
  const held = { epoch: null, brokenBy: null, isCoalesced: false, tx: holder.tx };
  const name = nameOf(kind, holder);
  const groups = typeof origin === 'number' ? undefined : origin.groups;
  claim.left += n;
  for (let index = 0; index < n; index += 1) {
    const job = new Job(
      first + index,
      claim,
      attempt,
      groups === undefined ? origin : inGroup(origin, groups[index]),
      payloads[index],
    );
    // Not `[job]`: a literal would be made in the old generation; see PendingSettlement.
    units.push(new Unit(holder.owner, name, null, Array.of(job), held));
  }
}

/** The origin of one job of a run whose jobs are of groups. */
function inGroup(run: Origin, group: string | undefined): Origin {
  const enqueuedAt = typeof run === 'number' ? run : run.enqueuedAt;
  return group === undefined ? enqueuedAt : { enqueuedAt, group };
}

/** One unit per job, each leading to the next one of its key. */
function addChains(units: Unit[], chains: ClaimedChains, claim: Claim, holder: ClaimContext): void {
  const held = { epoch: chains.epoch, brokenBy: null, isCoalesced: false, tx: holder.tx };
  const last: (Unit | undefined)[] = [];
  claim.left += chains.ids.length;
  for (const [index, id] of chains.ids.entries()) {
    const nth = chains.nth[index] ?? 0;
    const job = new Job(id, claim, 1, chains.origins[index] ?? 0, chains.payloads[index]);
    const unit = new Unit(
      holder.owner,
      nameOf(chains.kinds[index] ?? 0, holder),
      chains.keys[nth - 1] ?? '',
      [job],
      held,
    );
    const before = last[nth];
    if (before === undefined) units.push(unit);
    else before.next = unit;
    last[nth] = unit;
  }
}

/** Jobs of a key that run as one unit. */
interface Group {
  readonly kind: string;
  readonly jobs: Job[];
  readonly isCoalesced: boolean;
  brokenBy: number | null;
}

function toChain(claimed: ClaimedKey, claimOf: (id: number) => Claim, holder: ClaimContext): Unit {
  const { key, epoch } = claimed;
  const groups = groupsOf(claimed, claimOf, holder);
  const { kinds } = holder.definition;
  const isRelated = groups.some(({ kind }) => (kinds.get(kind)?.after.length ?? 0) > 0);
  const ordered = isRelated ? inOrder(groups, holder.definition) : groups;
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

function groupsOf(claimed: ClaimedKey, claimOf: (id: number) => Claim, holder: ClaimContext): Group[] {
  const groups: Group[] = [];
  const coalesced = new Map<number, Group>();
  for (const [index, id] of claimed.ids.entries()) {
    const number = claimed.units?.[index] ?? null;
    let group = number === null ? undefined : coalesced.get(number);
    if (group === undefined) {
      group = newGroup(claimed, index, holder);
      groups.push(group);
      if (number !== null && group.isCoalesced) coalesced.set(number, group);
    }
    const claim = claimOf(claimed.claims[index] ?? 0);
    claim.left += 1;
    group.jobs.push(
      new Job(id, claim, claimed.attempts[index] ?? 1, claimed.origins[index] ?? 0, claimed.payloads[index]),
    );
    group.brokenBy = claimed.brokenBy?.[index] ?? group.brokenBy;
  }
  return groups;
}

/**
 * This program's declaration decides how jobs of a kind run, even if another version has declared the kind differently. If the
 * kind does not coalesce here, each job is a unit. If the handler needs payloads that the claim left out, the unit is left to the
 * other version.
 */
function newGroup({ kinds, units, latest }: ClaimedKey, index: number, holder: ClaimContext): Group {
  const kind = nameOf(kinds[index] ?? 0, holder);
  const coalesce = holder.definition.kinds.get(kind)?.coalesce;
  const number = units?.[index] ?? null;
  if (number !== null && latest?.includes(number) === true && coalesce !== undefined && coalesce !== 'latest') {
    const foreign = `${kind}, as another version declares it: coalesce 'latest'`;
    return { kind: foreign, jobs: [], isCoalesced: true, brokenBy: null };
  }
  return { kind, jobs: [], isCoalesced: number !== null && coalesce !== 'none', brokenBy: null };
}

/** Repeatedly takes the oldest group that waits for none of the others. There is always one: `after` has no circles. */
function inOrder(groups: readonly Group[], { kinds }: Pick<Definition, 'kinds'>): Group[] {
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
