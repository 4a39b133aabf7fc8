import type { JSX } from 'preact';
import { Menu } from '../parts/menu.tsx';
import { isAbsolute, localZone, zone, zoneName } from './zone.ts';

/** A menu for the time zone, and for times in lists: the time itself, or how long ago it was. */
export function Times(): JSX.Element {
  return (
    <Menu title={zoneName()} icon="clock" label={`Times are in ${zoneName()}. Change`} isSticky>
      <Choice isChosen={zone.value === 'local'} choose={() => (zone.value = 'local')}>
        {`Here: ${localZone()}`}
      </Choice>
      <Choice isChosen={zone.value === 'UTC'} choose={() => (zone.value = 'UTC')}>
        UTC
      </Choice>
      <hr />
      <Choice isChosen={!isAbsolute.value} choose={() => (isAbsolute.value = false)}>
        How long ago
      </Choice>
      <Choice isChosen={isAbsolute.value} choose={() => (isAbsolute.value = true)}>
        Day and time
      </Choice>
    </Menu>
  );
}

interface ChoiceProps {
  readonly isChosen: boolean;
  readonly choose: () => void;
  readonly children: string;
}

function Choice({ isChosen, choose, children }: ChoiceProps): JSX.Element {
  return (
    <button type="button" aria-pressed={isChosen} onClick={choose}>
      {children}
    </button>
  );
}
