import type { JSX } from 'preact';
import { me } from '../data/api.ts';
import type { Link } from '../data/types.ts';

interface OutLinksProps {
  readonly of: Link['of'];
  /** The values that the address of a link may use. */
  readonly known: Readonly<Record<string, string | null>>;
}

/** Links to more information, such as logs and traces, if the server's options have such links. */
export function OutLinks({ of, known }: OutLinksProps): JSX.Element {
  const links = me.value?.links.filter((link) => link.of === of) ?? [];
  return (
    <>
      {links.map(({ title, url }) => {
        const href = fill(url, known);
        return (
          href !== undefined && (
            <a key={`${title} ${url}`} class="button" href={href} target="_blank" rel="noreferrer">
              {title}
            </a>
          )
        );
      })}
    </>
  );
}

/** @returns undefined if the address needs a value that is not known */
function fill(url: string, known: OutLinksProps['known']): string | undefined {
  const names = [...url.matchAll(/\{(\w+)\}/g)].map(([, name = '']) => name);
  if (names.some((name) => typeof known[name] !== 'string')) return undefined;
  return url.replaceAll(/\{(\w+)\}/g, (_, name: string) => encodeURIComponent(known[name] ?? ''));
}
