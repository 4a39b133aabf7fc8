import type { JSX } from 'preact';
import { Icon } from './icon.tsx';
import { say } from './toast.tsx';

/** Copies a text; over plain http, where browsers have no clipboard, by way of a field. */
export async function copy(text: string, what: string): Promise<void> {
  try {
    await navigator.clipboard.writeText(text);
  } catch {
    const field = document.createElement('textarea');
    field.value = text;
    document.body.append(field);
    field.select();
    document.execCommand('copy');
    field.remove();
  }
  say(`${what} copied`);
}

/** The same, done elsewhere: on the command line, by curl, in a program. */
export function CopyAs({ of }: { readonly of: Readonly<Record<string, string>> }): JSX.Element {
  return (
    <>
      {Object.entries(of).map(([name, text]) => (
        <button key={name} type="button" class="plain" title={text} onClick={() => void copy(text, name)}>
          <Icon name="copy" size={14} />
          {name}
        </button>
      ))}
    </>
  );
}
