import type { JSX } from 'preact';

/** Icons of 16 px, drawn with lines in the colour of the text. */
const PATHS = {
  overview: 'M2.5 9.5 6 5.5l3 3 4.5-5M2.5 13.5h11',
  queue: 'M2.5 3.5h11M2.5 6.5h11M2.5 9.5h7M2.5 12.5h4M12 9.5v4m-2-2 2 2 2-2',
  job: 'M3 3.5h10v9H3zM5.5 6.5h5M5.5 9.5h3',
  clock: 'M8 2.5a5.5 5.5 0 1 0 0 11 5.5 5.5 0 0 0 0-11ZM8 5v3l2 1.5',
  lock: 'M4 7.5h8v6H4zM5.5 7.5V5.2a2.5 2.5 0 0 1 5 0v2.3',
  actor:
    'M5 3.5a1.5 1.5 0 1 0 0 3 1.5 1.5 0 0 0 0-3ZM11 9.5a1.5 1.5 0 1 0 0 3 1.5 1.5 0 0 0 0-3ZM6.5 5H11v4.5M9.5 11H5V6.5',
  capture:
    'M8 3C5 3 3 3.8 3 4.8v6.4C3 12.2 5 13 8 13s5-.8 5-1.8V4.8C13 3.8 11 3 8 3ZM3 8c0 1 2 1.8 5 1.8S13 9 13 8M3 4.8c0 1 2 1.8 5 1.8s5-.8 5-1.8',
  file: 'M4 2.5h5l3 3v8H4zM9 2.5v3h3',
  history: 'M3 8a5 5 0 1 0 1.6-3.7L3 5.7M3 3v2.7h2.7M8 5.5V8l1.8 1.3',
  bell: 'M4.5 11.5V7a3.5 3.5 0 0 1 7 0v4.5l1 1h-9zM7 13.8h2',
  worker: 'M3 4h10v6H3zM6 13h4M8 10v3',
  admin: 'M3 4.5h10M3 8h10M3 11.5h10M6 3.2v2.6M10 6.7v2.6M5 10.2v2.6',
  search: 'M7 3a4 4 0 1 0 0 8 4 4 0 0 0 0-8ZM10 10l3 3',
  check: 'm3.5 8.5 3 3 6-7',
  cross: 'm4.5 4.5 7 7m0-7-7 7',
  warn: 'M8 3 2.5 13h11zM8 6.8v3M8 11.4v.2',
  circle: 'M8 3.2a4.8 4.8 0 1 0 0 9.6 4.8 4.8 0 0 0 0-9.6Z',
  half: 'M8 3.2a4.8 4.8 0 1 0 0 9.6 4.8 4.8 0 0 0 0-9.6ZM8 3.2v9.6M10 4v8M11.6 5.2v5.6',
  slash: 'M8 3.2a4.8 4.8 0 1 0 0 9.6 4.8 4.8 0 0 0 0-9.6ZM4.8 11.2l6.4-6.4',
  stack: 'M3.5 10.5 8 13l4.5-2.5M3.5 8 8 10.5 12.5 8M8 3 3.5 5.5 8 8l4.5-2.5z',
  pause: 'M5.5 4v8M10.5 4v8',
  play: 'M5 3.5v9l7-4.5z',
  sun: 'M8 5.5a2.5 2.5 0 1 0 0 5 2.5 2.5 0 0 0 0-5ZM8 2v1.2M8 12.8V14M2 8h1.2M12.8 8H14M3.8 3.8l.8.8M11.4 11.4l.8.8M3.8 12.2l.8-.8M11.4 4.6l.8-.8',
  moon: 'M12.8 9.6A5.3 5.3 0 0 1 6.4 3.2a5.3 5.3 0 1 0 6.4 6.4Z',
  system: 'M2.5 3.5h11v7h-11zM6 13h4',
  copy: 'M5.5 5.5h7v7h-7zM3.5 10.5v-7h7',
  retry: 'M12.5 6.5A5 5 0 1 0 13 9M12.8 3.5v3h-3',
  down: 'm4 6.5 4 4 4-4',
  up: 'm4 9.5 4-4 4 4',
  star: 'm8 2.8 1.6 3.4 3.7.5-2.7 2.6.7 3.7L8 11.2 4.7 13l.7-3.7-2.7-2.6 3.7-.5z',
  columns: 'M2.5 3.5h11v9h-11zM6.2 3.5v9M9.8 3.5v9',
  snooze: 'M5 4h6L5 12h6',
  download: 'M8 2.5v7M5 7l3 3 3-3M3 12.5h10',
  undo: 'M4 6.5h5.5a3 3 0 0 1 0 6H6M6.5 4 4 6.5 6.5 9',
  plus: 'M8 3.5v9M3.5 8h9',
  arrow: 'M3.5 8h9M9 4.5 12.5 8 9 11.5',
  info: 'M8 2.8a5.2 5.2 0 1 0 0 10.4A5.2 5.2 0 0 0 8 2.8ZM8 7.4v3.2M8 5.2v.2',
  menu: 'M2.5 4.5h11M2.5 8h11M2.5 11.5h11',
  bolt: 'M9 2.5 4 9h3.5L7 13.5 12 7H8.5z',
  out: 'M6.5 3.5h-3v9h3M7 8h6M10.5 5.5 13 8l-2.5 2.5',
  help: 'M6 6.2a2 2 0 1 1 2.7 1.9c-.5.2-.7.5-.7 1v.4M8 11.6v.2',
} as const;

export type IconName = keyof typeof PATHS;

export function Icon({ name, size = 16 }: { readonly name: IconName; readonly size?: number }): JSX.Element {
  return (
    <svg width={size} height={size} viewBox="0 0 16 16" aria-hidden="true" focusable="false">
      <path
        d={PATHS[name]}
        fill="none"
        stroke="currentColor"
        stroke-width="1.4"
        stroke-linecap="round"
        stroke-linejoin="round"
      />
    </svg>
  );
}
