import { useEffect } from 'preact/hooks';
import { me } from '../data/api.ts';
import { visibleName } from './visible.ts';

/** What tabs, bookmarks and the history of the browser call the page: what it is of, and whose dashboard this is. */
export function useTitle(title: string): void {
  const whose = me.value?.title ?? undefined;
  useEffect(() => {
    document.title = [title, whose, 'Pawl']
      .flatMap((part) => (part === undefined ? [] : [visibleName(part)]))
      .join(' · ');
  }, [title, whose]);
}
