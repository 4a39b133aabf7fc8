import type { JSX } from 'preact';
import { Icon, type IconName } from './icon.tsx';

interface TileProps {
  readonly icon: IconName;
  readonly label: string;
  readonly value: string;
  readonly href: string;
  readonly tone: string;
  readonly isStrong?: boolean;
}

/** One figure, with a link to the page that has more about it. */
export function Tile({ icon, label, value, href, tone, isStrong = false }: TileProps): JSX.Element {
  return (
    <a class={`tile tone-${tone}`} href={href}>
      <span class="label">
        <Icon name={icon} size={14} />
        {label}
      </span>
      <span class="value" data-strong={isStrong} data-none={value === '0' || value === '–'}>
        {value}
      </span>
    </a>
  );
}
