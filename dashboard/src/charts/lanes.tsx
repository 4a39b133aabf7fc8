import type { JSX } from 'preact';
import { tick } from '../data/live.ts';
import type { Move } from '../data/types.ts';
import { duration } from '../text/format.ts';
import { clock } from '../text/zone.ts';

interface Visit {
  readonly state: string;
  readonly from: number;
  readonly to: number;
  readonly isOpen: boolean;
}

/** A lane for each state, with the times of the actor in it. Failed turns are marks. The table of its transitions has the same. */
export function Lanes({
  of,
  endedAt,
}: {
  readonly of: readonly Move[];
  readonly endedAt: string | null;
}): JSX.Element | null {
  void tick.value;
  const [first] = of;
  if (first === undefined) return null;
  const begin = ms(first.at);
  const end = Math.max(begin + 1, endedAt === null ? Date.now() : ms(endedAt));
  const visits = visitsOf(of, end);
  const place = (from: number, to: number): { left: string; width: string } => ({
    left: `${((from - begin) / (end - begin)) * 100}%`,
    width: `${Math.max(0.4, ((to - from) / (end - begin)) * 100)}%`,
  });
  return (
    <div class="lanes" role="img" aria-label={`In which state it was: ${visits.map(wording).join(', ')}`}>
      {[...new Set(visits.map(({ state }) => state))].map((state) => (
        <>
          <span class="wrap small">{state}</span>
          <div class="lane">
            {visits
              .filter((visit) => visit.state === state)
              .map((visit) => (
                <i
                  key={visit.from}
                  class={visit.isOpen ? 'open' : ''}
                  style={place(visit.from, visit.to)}
                  title={`${wording(visit)}, from ${clock(visit.from)}`}
                />
              ))}
            {of
              .filter(({ error, from, to }) => error !== null && (from ?? to) === state)
              .map(({ at, error }) => (
                <b key={at} style={{ left: place(ms(at), ms(at)).left }} title={`${clock(at)}: ${error}`} />
              ))}
          </div>
        </>
      ))}
      <span />
      <div class="ends small muted">
        <span>{clock(begin)}</span>
        <span>{duration(end - begin)}</span>
        <span>{endedAt === null ? 'now' : clock(end)}</span>
      </div>
    </div>
  );
}

function visitsOf(moves: readonly Move[], end: number): readonly Visit[] {
  const entries = moves.filter(({ to }, index) => index === 0 || to !== moves[index - 1]?.to);
  return entries.map(({ at, to }, index) => {
    const next = entries[index + 1];
    return { state: to, from: ms(at), to: next === undefined ? end : ms(next.at), isOpen: next === undefined };
  });
}

function wording({ state, from, to }: Visit): string {
  return `${state} for ${duration(to - from)}`;
}

function ms(at: string): number {
  return new Date(at).getTime();
}
