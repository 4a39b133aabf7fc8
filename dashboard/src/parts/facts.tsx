import type { ComponentChildren, JSX } from 'preact';
import { clock } from '../text/zone.ts';
import { Icon, type IconName } from './icon.tsx';

/** A name and what it is; what is null or undefined is left out. */
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

/** Why something is as it is, the weightiest first. */
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

/** Explanations of the server have its times; a reader compares them with a clock on the wall. */
function inOurZone(text: string): string {
  return text.replace(/\b\d{4}-\d\d-\d\dT[\d:.]+(?:Z|[+-]\d\d:\d\d)/g, (time) => clock(time));
}
