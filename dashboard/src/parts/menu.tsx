import type { ComponentChildren, JSX } from 'preact';
import { useEffect, useRef } from 'preact/hooks';
import { Icon, type IconName } from './icon.tsx';

interface MenuProps {
  readonly title: string;
  readonly icon: IconName;
  readonly children: ComponentChildren;
  /** The subject of the menu, for screen readers. */
  readonly label?: string;
  /** Whether the menu stays open after a choice. */
  readonly isSticky?: boolean;
}

/** A menu below a button. Escape, a click outside it and a choice close it. */
export function Menu({ title, icon, children, label, isSticky = false }: MenuProps): JSX.Element {
  const element = useRef<HTMLDetailsElement>(null);
  useEffect(() => {
    const close = (): void => {
      if (element.current !== null) element.current.open = false;
    };
    const outside = ({ target }: Event): void => {
      if (target instanceof Node && element.current?.contains(target) !== true) close();
    };
    const escape = (event: KeyboardEvent): void => {
      if (event.key !== 'Escape' || element.current?.open !== true) return;
      close();
      element.current.querySelector('summary')?.focus();
    };
    document.addEventListener('click', outside);
    document.addEventListener('keydown', escape);
    return () => {
      document.removeEventListener('click', outside);
      document.removeEventListener('keydown', escape);
    };
  }, []);
  const chosen = ({ target }: Event): void => {
    if (!isSticky && element.current !== null && target instanceof Element && target.closest('button, a') !== null)
      element.current.open = false;
  };
  return (
    <details class="menu" ref={element}>
      <summary class="button" aria-label={label}>
        <Icon name={icon} size={14} />
        <span>{title}</span>
        <Icon name="down" size={12} />
      </summary>
      {/* biome-ignore lint/a11y/useKeyWithClickEvents: only hears what its buttons were told, by key or mouse */}
      {/* biome-ignore lint/a11y/noStaticElementInteractions: see above */}
      <div class="menu-body" onClick={chosen}>
        {children}
      </div>
    </details>
  );
}
