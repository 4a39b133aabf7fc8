import type { JSX } from 'preact';
import { useEffect, useState } from 'preact/hooks';
import { getText } from '../data/api.ts';
import { Card, Empty } from '../parts/card.tsx';
import { attempt } from '../parts/toast.tsx';
import { CopyButton } from '../text/copy.tsx';
import { Json } from '../text/json.tsx';

interface JobPartProps {
  readonly id: string;
  readonly part: 'payload' | 'result' | 'progress';
  readonly title: string;
  readonly isHidden: boolean;
}

/** The payload or the result of a job, unchanged. It is a separate request, because a read as JSON would round long numbers. */
export function JobPart({ id, part, title, isHidden }: JobPartProps): JSX.Element {
  const [text, setText] = useState<string | undefined>();
  useEffect(() => {
    if (isHidden) return;
    void attempt(async () => {
      setText(await getText(`jobs/${id}/${part}`));
      return undefined;
    });
  }, [id, part, isHidden]);
  const isThere = text !== undefined && text !== 'null';
  return (
    <Card title={title} actions={isThere && <CopyButton text={async () => text} what={part} />}>
      {isHidden ? (
        <Empty title="Hidden">This needs the permission payload:read.</Empty>
      ) : isThere ? (
        <div class="body">
          <Json text={text} label={part} />
        </div>
      ) : (
        <p class="body muted">{text === undefined ? 'Loading…' : 'None.'}</p>
      )}
    </Card>
  );
}
