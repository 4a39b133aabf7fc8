import type { JSX } from 'preact';
import { Icon, type IconName } from './icon.tsx';

export type Tone = 'good' | 'busy' | 'wait' | 'warn' | 'bad' | 'idle' | 'accent';

/** Each status has a colour, a shape and its word, so that none of them alone must say it. */
const LOOKS: Readonly<Record<string, readonly [Tone, IconName]>> = {
  new: ['wait', 'circle'],
  'in-progress': ['busy', 'half'],
  complete: ['good', 'check'],
  error: ['bad', 'cross'],
  cancelled: ['idle', 'slash'],
  running: ['busy', 'half'],
  due: ['wait', 'circle'],
  napping: ['idle', 'clock'],
  hibernating: ['idle', 'moon'],
  'backing off': ['warn', 'clock'],
  paused: ['warn', 'pause'],
  held: ['bad', 'warn'],
  final: ['good', 'check'],
  released: ['good', 'check'],
  broken: ['bad', 'cross'],
  expired: ['warn', 'clock'],
  granted: ['busy', 'lock'],
  open: ['bad', 'bell'],
  opened: ['bad', 'bell'],
  acked: ['warn', 'check'],
  resolved: ['good', 'check'],
  info: ['idle', 'info'],
  warning: ['warn', 'warn'],
  critical: ['bad', 'bolt'],
  done: ['good', 'check'],
  refused: ['bad', 'cross'],
  stopped: ['idle', 'slash'],
  failed: ['bad', 'cross'],
  unknown: ['warn', 'help'],
  live: ['good', 'check'],
  lost: ['bad', 'cross'],
  moving: ['good', 'check'],
  current: ['good', 'check'],
  behind: ['warn', 'clock'],
  retry: ['warn', 'retry'],
  exclusive: ['busy', 'lock'],
  shared: ['wait', 'stack'],
  permit: ['accent', 'stack'],
  retired: ['idle', 'clock'],
  deleting: ['warn', 'clock'],
  deleted: ['idle', 'slash'],
  coalesced: ['accent', 'stack'],
};

export function Badge({ status, children }: { readonly status: string; readonly children?: string }): JSX.Element {
  const [tone, icon] = LOOKS[status] ?? ['idle', 'circle'];
  return (
    <span class={`badge tone-${tone}`}>
      <Icon name={icon} size={13} />
      {children ?? status}
    </span>
  );
}

export function toneOf(status: string): Tone {
  return LOOKS[status]?.[0] ?? 'idle';
}
