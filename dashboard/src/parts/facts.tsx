import type { ComponentChildren, JSX } from 'preact';
import { clock } from '../text/zone.ts';
import { Icon, type IconName } from './icon.tsx';

/** A name and its value. A fact whose value is null or undefined is left out. */
export type Fact = readonly [name: string, value: ComponentChildren];

export function Facts({ of }: { readonly of: readonly Fact[] }): JSX.Element {
  return (
    <dl class="facts">
      {of
        .filter(([, value]) => value !== null && value !== undefined)
        .map(([name, value]) => (
          <>
            <dt>{name}</dt>
            <dd>{value}</dd>
          </>
        ))}
    </dl>
  );
}

export interface Reason {
  readonly text: string;
  readonly more?: ComponentChildren;
  readonly icon?: IconName;
  readonly tone?: string;
}

/** Reasons for a state, the most important one first. */
export function Reasons({ of }: { readonly of: readonly Reason[] }): JSX.Element {
  return (
    <ul class="reasons">
      {of.map(({ text, more, icon = 'info', tone = 'idle' }) => (
        <li key={text} class={`tone-${tone}`}>
          <Icon name={icon} />
          <span class="wrap">
            {inOurZone(text)}
            {more}
          </span>
        </li>
      ))}
    </ul>
  );
}

/** Explanations of the server have ISO times. They are shown in the zone of the page, because a reader compares them with a clock. */
function inOurZone(text: string): string {
  return text.replace(/\b\d{4}-\d\d-\d\dT[\d:.]+(?:Z|[+-]\d\d:\d\d)/g, (time) => clock(time));
}
