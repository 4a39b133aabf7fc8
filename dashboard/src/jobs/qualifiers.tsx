import type { JSX } from 'preact';
import { useResource } from '../data/resource.ts';
import type { Queue } from '../data/types.ts';
import { queueUrl } from '../router.ts';

const ALWAYS = [
  'status:new',
  'status:in-progress',
  'status:complete',
  'status:error',
  'status:cancelled',
  'since:15m',
  'since:1h',
  'since:1d',
  'since:7d',
  'until:1h',
  'until:1d',
  'key:',
  'kind:',
];

interface QualifiersProps {
  readonly id: string;
  readonly typed: string;
  /** The queue whose kinds are offered; empty for none. */
  readonly queue: string;
}

/** Completions of the last word of a search, which the browser shows below the field. */
export function Qualifiers({ id, typed, queue }: QualifiersProps): JSX.Element {
  const found = useResource<Queue>(queue === '' ? undefined : queueUrl(queue), 60_000);
  const kinds = (found.data?.kinds ?? []).map((kind) => `kind:${/^[\w-]+$/.test(kind) ? kind : JSON.stringify(kind)}`);
  const [, before = '', last = ''] = /^(.*?)(\S*)$/s.exec(typed) ?? [];
  const fitting = [...kinds, ...ALWAYS].filter((one) => one.startsWith(last) && one !== last);
  return (
    <datalist id={id}>
      {fitting.map((one) => (
        <option key={one} value={`${before}${one}`} />
      ))}
    </datalist>
  );
}
