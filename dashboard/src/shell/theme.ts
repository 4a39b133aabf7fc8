import { effect, signal } from '@preact/signals';

const THEMES = ['system', 'light', 'dark'] as const;
export type Theme = (typeof THEMES)[number];

export const theme = signal<Theme>(kept());
/** Rises when the colours change, so that charts are drawn again. */
export const repaint = signal(0);

export function startTheme(): void {
  effect(() => {
    if (theme.value === 'system') delete document.documentElement.dataset['theme'];
    else document.documentElement.dataset['theme'] = theme.value;
    try {
      localStorage.setItem('pawl-theme', theme.value);
    } catch {
      // A browser that keeps nothing starts with the system's theme again.
    }
    repaint.value = repaint.peek() + 1;
  });
  matchMedia('(prefers-color-scheme: dark)').addEventListener('change', () => {
    repaint.value += 1;
  });
}

export function nextTheme(): void {
  theme.value = THEMES[(THEMES.indexOf(theme.value) + 1) % THEMES.length] ?? 'system';
}

function kept(): Theme {
  try {
    const value = localStorage.getItem('pawl-theme');
    return THEMES.find((known) => known === value) ?? 'system';
  } catch {
    return 'system';
  }
}
