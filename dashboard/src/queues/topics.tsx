import type { JSX } from 'preact';
import { useResource } from '../data/resource.ts';
import type { TopicList } from '../data/types.ts';
import { Card, Empty, Example, Head, Loaded } from '../parts/card.tsx';
import { Table } from '../parts/table.tsx';
import { Name, QueueLink } from '../text/name.tsx';

/** Topics, and the queues that get the published messages. */
export function TopicsPage(): JSX.Element {
  const topics = useResource<TopicList>('topics', 5000);
  return (
    <>
      <Head title="Topics" about="A message that is published to a topic becomes a job in each of its queues." />
      <Loaded of={topics}>
        {({ items }) =>
          items.length === 0 ? (
            <Empty title="There is none">
              A program subscribes its queues at every start:
              <Example>{`await createTopic(engine, 'orders').subscribe('emails', 'send');`}</Example>
            </Empty>
          ) : (
            <Card title="Topics">
              <Table
                caption="Topics"
                rows={items}
                keyOf={({ name }) => name}
                columns={[
                  { title: 'Topic', of: ({ name }) => <Name of={name} /> },
                  {
                    title: 'Queues',
                    of: ({ subscriptions }) => (
                      <>
                        {subscriptions.map(({ queue, kind }) => (
                          <span key={`${queue} ${kind}`}>
                            <QueueLink name={queue} /> (<Name of={kind} />){' '}
                          </span>
                        ))}
                      </>
                    ),
                  },
                ]}
              />
            </Card>
          )
        }
      </Loaded>
    </>
  );
}
