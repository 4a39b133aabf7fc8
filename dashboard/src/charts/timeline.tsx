import type { JSX } from 'preact';
import type { JobDetail, Move } from '../data/types.ts';
import { Badge, toneOf } from '../parts/badge.tsx';
import { duration } from '../text/format.ts';

interface Attempt {
  readonly n: number;
  readonly waitMs: number;
  readonly runMs: number;
  readonly outcome: string;
}

/** A wait takes at most this part of the width, because readers want to see the runs, and waits are mostly longer. */
const MOST_WAIT = 0.3;

/** Each attempt is a bar: how long it waited and how long it ran. Long waits are drawn shorter, or the runs would be too small to see. */
export function Timeline({ job }: { readonly job: JobDetail }): JSX.Element {
  const attempts = attemptsOf(job.history);
  if (attempts.length === 0) return <p class="muted">It has not been tried yet.</p>;
  const longestRun = Math.max(1, ...attempts.map(({ runMs }) => runMs));
  const longestWait = Math.max(1, ...attempts.map(({ waitMs }) => waitMs));
  const isCut = longestWait > longestRun * MOST_WAIT * 2;
  const waitShare = isCut ? MOST_WAIT : longestWait / (longestWait + longestRun);
  const width = (share: number): { width: string } => ({ width: `${Math.max(0.5, share * 100)}%` });
  return (
    <>
      <ul class="timeline" aria-label="Attempts">
        {attempts.map(({ n, waitMs, runMs, outcome }) => (
          <li key={n}>
            <span>Attempt {n}</span>
            <div
              class="track"
              role="img"
              aria-label={`waited ${duration(waitMs)}, ran ${duration(runMs)}`}
              title={`waited ${duration(waitMs)}, ran ${duration(runMs)}`}
            >
              <span class={isCut ? 'gap' : 'wait'} style={width((waitMs / longestWait) * waitShare)}>
                <i>{duration(waitMs)}</i>
              </span>
              <span class={`run tone-${toneOf(outcome)}`} style={width((runMs / longestRun) * (1 - waitShare))} />
            </div>
            <span class="small took">{duration(runMs)}</span>
            <Badge status={outcome} />
          </li>
        ))}
      </ul>
      {isCut && <p class="small muted">Hatched: waiting, drawn shorter than it was.</p>}
    </>
  );
}

function attemptsOf(history: readonly Move[]): Attempt[] {
  const attempts: Attempt[] = [];
  let since = history[0]?.at;
  let claimed: string | undefined;
  for (const { at, from, to } of history) {
    if (to === 'in-progress') claimed = at;
    else if (from === 'in-progress' && claimed !== undefined && since !== undefined) {
      attempts.push({
        n: attempts.length + 1,
        waitMs: span(since, claimed),
        runMs: span(claimed, at),
        outcome: to === 'new' ? 'retry' : to,
      });
      since = at;
      claimed = undefined;
    }
  }
  if (claimed !== undefined && since !== undefined) {
    attempts.push({
      n: attempts.length + 1,
      waitMs: span(since, claimed),
      runMs: Date.now() - new Date(claimed).getTime(),
      outcome: 'in-progress',
    });
  }
  return attempts;
}

function span(from: string, to: string): number {
  return Math.max(0, new Date(to).getTime() - new Date(from).getTime());
}
