import { type Signal, signal } from '@preact/signals';

/** Something that this browser keeps for its user. One that keeps nothing starts anew each time. */
export function kept<T>(name: string, isRight: (value: unknown) => value is T, start: T): Signal<T> {
  const value = signal(read(name, isRight) ?? start);
  value.subscribe((now) => {
    try {
      localStorage.setItem(name, JSON.stringify(now));
    } catch {
      // It is full, or forbidden: what is on the screen still holds.
    }
  });
  addEventListener('storage', ({ key }) => {
    const other = key === name ? read(name, isRight) : undefined;
    if (other !== undefined && JSON.stringify(other) !== JSON.stringify(value.peek())) value.value = other;
  });
  return value;
}

function read<T>(name: string, isRight: (value: unknown) => value is T): T | undefined {
  try {
    const value: unknown = JSON.parse(localStorage.getItem(name) ?? 'null');
    return isRight(value) ? value : undefined;
  } catch {
    return undefined;
  }
}
