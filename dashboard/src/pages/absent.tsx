import type { JSX } from 'preact';
import { Empty, Head } from '../parts/card.tsx';

const ABOUT = {
  files: ['Files', 'Versions of files outside the database: who refers to what, and what can be swept away.'],
} as const;

/** A part that this version does not have yet says so. */
export function AbsentPage({ part }: { readonly part: keyof typeof ABOUT }): JSX.Element {
  const [title, about] = ABOUT[part];
  return (
    <>
      <Head title={title} about={about} />
      <section class="card">
        <Empty title="This version of Pawl shows nothing here yet">The server says so, too: 501 not_supported.</Empty>
      </section>
    </>
  );
}
