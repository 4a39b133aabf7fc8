/** The answer of a claim: the jobs of its rows, and the chains of its keys. */
import type { Origin } from '../../job-options.ts';
import type { ClaimedKey, ClaimedRun } from '../../store.ts';
import { JOBS, jobNumber } from '../heads/place.ts';
import type { Span } from '../heads/spans.ts';
import { type JobRow, originOf } from '../rows.ts';
import type { HeldClaim } from './held.ts';
import type { KeyTaken } from './key-taking.ts';

export function runsOf(held: HeldClaim, span: Span, row: JobRow): ClaimedRun[] {
  const runs: ClaimedRun[] = [];
  let run: { first: number; kind: number; payloads: unknown[]; origin: Origin } | undefined;
  const end = (): void => {
    if (run === undefined) return;
    const { first, kind, payloads, origin } = run;
    runs.push({ claim: held.id, first, n: payloads.length, kind, attempt: span.attempts + 1, origin, payloads });
    run = undefined;
  };
  for (let index = span.index; index < span.index + span.n; index += 1) {
    const id = jobNumber(held.shard, span.piece, index);
    const kind = row.kinds[index] ?? 0;
    const origin = originOf(row, index, held.claimedAt);
    held.plain.set(id, span);
    noteLetter(held, id, origin);
    if (run !== undefined && (run.kind !== kind || typeof origin !== 'number' || typeof run.origin !== 'number')) end();
    run ??= { first: id, kind, payloads: [], origin };
    run.payloads.push(row.payloads[index] ?? null);
  }
  end();
  return runs;
}

/** Jobs whose keys are labels. Each is a unit of its own, and its epoch is the token of its claim. */
export function labelledOf(held: HeldClaim, span: Span, row: JobRow): ClaimedKey[] {
  return runsOf(held, span, row).flatMap(({ first, payloads, kind, attempt }) =>
    payloads.map((payload, offset): ClaimedKey => {
      const index = (first + offset) % JOBS;
      const origins = [originOf(row, index, held.claimedAt)];
      const job = { ids: [first + offset], claims: [held.id], kinds: [kind], attempts: [attempt], payloads: [payload] };
      return { key: row.keys?.[index] ?? '', epoch: held.claim.token, ...job, origins };
    }),
  );
}

export function pokesOf(span: Span, keys: readonly string[]): [key: string, poke: Span][] {
  return Array.from({ length: span.n }, (_, offset): [string, Span] => {
    const index = span.index + offset;
    return [keys[index] ?? '', { ...span, index, n: 1 }];
  });
}

/** Adds a poke. A job that was cancelled in the line and retried by hand is named twice; it is one poke, since jobs leave a claim by their places. */
export function withPoke(known: readonly Span[] = [], poke: Span): Span[] {
  const isThere = known.some(({ piece, index }) => piece === poke.piece && index === poke.index);
  return isThere ? [...known] : [...known, poke];
}

/** Notes a job with an `onError` of its own, since it ends in a transaction of its own: see letters.ts. */
function noteLetter(held: HeldClaim, id: number, origin: Origin): void {
  if (typeof origin !== 'number' && origin.options?.onError !== undefined) held.ownLetters.add(id);
}

export function claimedKey(held: HeldClaim, { key, jobs }: KeyTaken, coalescing: ReadonlySet<number>): ClaimedKey {
  for (const { id, origin } of jobs) noteLetter(held, id, origin);
  const units = jobs.map(({ kind }) => (coalescing.has(kind) ? kind : null));
  return {
    key: key.key,
    epoch: key.epoch,
    ids: jobs.map(({ id }) => id),
    claims: jobs.map(() => held.id),
    kinds: jobs.map(({ kind }) => kind),
    attempts: jobs.map(({ attempt }) => attempt),
    origins: jobs.map(({ origin }) => origin),
    payloads: jobs.map(({ payload }) => payload),
    ...(units.some((unit) => unit !== null) && { units }),
  };
}
