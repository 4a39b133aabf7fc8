import { type Signal, signal } from '@preact/signals';

/** A value that this browser keeps for its user. A browser that keeps nothing begins with `start` each time. */
export function kept<T>(name: string, isRight: (value: unknown) => value is T, start: T): Signal<T> {
  const value = signal(read(name, isRight) ?? start);
  value.subscribe((now) => {
    try {
      localStorage.setItem(name, JSON.stringify(now));
    } catch {
      // The storage is full or forbidden. The value is still valid for this page.
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
