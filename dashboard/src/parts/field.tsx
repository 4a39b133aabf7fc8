import type { ComponentChildren, JSX } from 'preact';
import { Icon } from './icon.tsx';

interface FieldProps {
  readonly title: string;
  readonly problem: string | undefined;
  readonly children: ComponentChildren;
}

/** A field of a form, with its problem below it. */
export function Field({ title, problem, children }: FieldProps): JSX.Element {
  return (
    <label>
      {title}
      {children}
      {problem !== undefined && <Problem text={problem} />}
    </label>
  );
}

export function Problem({ text }: { readonly text: string }): JSX.Element {
  return (
    <span class="problem small" role="alert">
      <Icon name="warn" size={13} />
      <span class="wrap">{text}</span>
    </span>
  );
}
