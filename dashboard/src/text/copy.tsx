import type { JSX } from 'preact';
import { me } from '../data/api.ts';
import { Icon } from '../parts/icon.tsx';
import { Menu } from '../parts/menu.tsx';
import { say } from '../parts/toast.tsx';
import { urlOf } from '../router.ts';

/** Copies a text. Over plain http, browsers have no clipboard, so the text is copied from a field. */
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

/** Quotes a text as one word of a shell, whatever it contains. */
export function shellWord(text: string): string {
  return `'${text.replaceAll("'", "'\\''")}'`;
}

/** Quotes a text as a literal of SQL. */
export function sqlText(text: string): string {
  return `'${text.replaceAll("'", "''")}'`;
}

/** The curl command that sends the same request to the API, with the token of the person who runs it. */
export function curlOf(asked: string): string {
  const by = me.value?.by;
  // A caller that the server admits by its address, or by a function of the program, shows no token.
  const needsToken = by !== 'loopback' && by !== 'authorize';
  return `curl ${needsToken ? '-H "Authorization: Bearer $PAWL_TOKEN" ' : ''}${shellWord(urlOf(`api/v1/${asked}`))}`;
}

/** A namespace as an option of a command and as the last argument of a call. Both are empty without a namespace. */
export function inNamespace(namespace: string): { readonly option: string; readonly given: string } {
  if (namespace === '') return { option: '', given: '' };
  return {
    option: ` --namespace ${shellWord(namespace)}`,
    given: `, { namespace: ${JSON.stringify(namespace)} }`,
  };
}

/** A menu that copies the same request for the command line, for curl, or for a program. */
export function CopyAs({ of }: { readonly of: Readonly<Record<string, string>> }): JSX.Element {
  return (
    <Menu title="Copy as" icon="copy">
      {Object.entries(of).map(([name, text]) => (
        <button key={name} type="button" onClick={() => void copy(text, name)}>
          <span>{name}</span>
          <code class="cut">{text}</code>
        </button>
      ))}
    </Menu>
  );
}

/** Copies one text. */
export function CopyButton({
  text,
  what,
}: {
  readonly text: () => Promise<string>;
  readonly what: string;
}): JSX.Element {
  return (
    <button type="button" class="plain" onClick={() => void text().then((found) => copy(found, what))}>
      <Icon name="copy" size={14} />
      Copy
    </button>
  );
}
