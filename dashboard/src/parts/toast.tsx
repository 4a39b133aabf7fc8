import { signal } from '@preact/signals';
import type { JSX } from 'preact';
import type { Tone } from './badge.tsx';
import { Icon } from './icon.tsx';

interface Toast {
  readonly id: number;
  readonly tone: Tone;
  readonly text: string;
}

const SHOWN_MS = 6000;
const toasts = signal<readonly Toast[]>([]);
let last = 0;

export function say(text: string, tone: Tone = 'good'): void {
  const toast = { id: (last += 1), tone, text };
  toasts.value = [...toasts.value, toast].slice(-4);
  setTimeout(() => {
    toasts.value = toasts.value.filter(({ id }) => id !== toast.id);
  }, SHOWN_MS);
}

/** Runs an action, shows its outcome, and never throws. @returns whether it succeeded */
export async function attempt(work: () => Promise<string | undefined>): Promise<boolean> {
  try {
    const done = await work();
    if (done !== undefined) say(done);
    return true;
  } catch (error) {
    say(error instanceof Error ? error.message : String(error), 'bad');
    return false;
  }
}

export function Toasts(): JSX.Element {
  return (
    <div class="toasts" role="status" aria-live="polite">
      {toasts.value.map(({ id, tone, text }) => (
        <p key={id} class={`toast tone-${tone}`}>
          <Icon name={tone === 'bad' ? 'warn' : 'check'} />
          <span class="wrap">{text}</span>
        </p>
      ))}
    </div>
  );
}
