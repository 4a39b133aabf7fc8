import { useEffect } from 'preact/hooks';
import { me } from '../data/api.ts';
import { visibleName } from './visible.ts';

/** Sets the title of the page, which tabs, bookmarks and the browser's history show: its subject, and the title of this dashboard. */
export function useTitle(title: string): void {
  const whose = me.value?.title ?? undefined;
  useEffect(() => {
    document.title = [title, whose, 'Pawl']
      .flatMap((part) => (part === undefined ? [] : [visibleName(part)]))
      .join(' · ');
  }, [title, whose]);
}
