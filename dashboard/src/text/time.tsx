import type { JSX } from 'preact';
import { tick } from '../data/live.ts';
import { ago } from './format.ts';
import { None } from './words.tsx';
import { clock, exact, isAbsolute, millis } from './zone.ts';

/** How long ago, or when, as the user chose. The tooltip has the time to the millisecond. */
export function Time({ at }: { readonly at: string | null | undefined }): JSX.Element {
  void tick.value;
  if (at === null || at === undefined) return <None />;
  return (
    <time dateTime={at} title={exact(at)}>
      {isAbsolute.value ? clock(at) : ago(at)}
    </time>
  );
}

/** The time, and how long ago it was, for places with room for both. */
export function Moment({ at }: { readonly at: string }): JSX.Element {
  void tick.value;
  return (
    <time dateTime={at} title={exact(at)}>
      {clock(at)}
      <span class="muted">
        .{millis(at)}, {ago(at)}
      </span>
    </time>
  );
}
