import type { JSX } from 'preact';
import { duration } from '../format.ts';
import type { JobDetail, Move } from '../types.ts';
import { Badge } from './badge.tsx';

interface Attempt {
  readonly n: number;
  readonly waitMs: number;
  readonly runMs: number;
  readonly outcome: string;
}

/** Each attempt as a bar: how long it waited, how long it ran. Long idle times are cut short, or nothing else would be seen. */
export function Timeline({ job }: { readonly job: JobDetail }): JSX.Element {
  const attempts = attemptsOf(job.history);
  if (attempts.length === 0) return <p class="muted">It has not been tried yet.</p>;
  const longestRun = Math.max(1, ...attempts.map(({ runMs }) => runMs));
  const most = Math.max(...attempts.map(({ waitMs, runMs }) => Math.min(waitMs, longestRun * 2) + runMs));
  return (
    <ul class="timeline" aria-label="Attempts">
      {attempts.map(({ n, waitMs, runMs, outcome }) => {
        const isCut = waitMs > longestRun * 2;
        const width = (ms: number): { width: string } => ({ width: `${Math.max(0.5, (ms / most) * 100)}%` });
        return (
          <li key={n}>
            <span>Attempt {n}</span>
            <div
              class="track"
              role="img"
              aria-label={`waited ${duration(waitMs)}, ran ${duration(runMs)}`}
              title={`waited ${duration(waitMs)}, ran ${duration(runMs)}`}
            >
              <span class={isCut ? 'gap' : 'tone-idle'} style={width(Math.min(waitMs, longestRun * 2))} />
              <span class={toneOf(outcome)} style={width(runMs)} />
            </div>
            <span class="small">
              {duration(runMs)} <Badge status={outcome} />
            </span>
          </li>
        );
      })}
    </ul>
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

function toneOf(outcome: string): string {
  return `tone-${({ complete: 'good', error: 'bad', retry: 'warn', 'in-progress': 'busy' } as Record<string, string>)[outcome] ?? 'idle'}`;
}
