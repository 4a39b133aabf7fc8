import { Component, type ComponentChildren } from 'preact';
import { Empty, Head } from '../parts/card.tsx';

interface State {
  readonly error: Error | undefined;
}

/** If an error is thrown while a page is drawn, the error is shown instead. So no page is ever blank. */
export class Boundary extends Component<{ readonly children: ComponentChildren }, State> {
  override state: State = { error: undefined };

  static override getDerivedStateFromError(error: Error): State {
    return { error };
  }

  override componentDidCatch(error: Error): void {
    console.error(error);
  }

  override render(): ComponentChildren {
    const { error } = this.state;
    if (error === undefined) return this.props.children;
    return (
      <>
        <Head title="This page cannot be shown" />
        <section class="card">
          <Empty title={error.message}>
            <button type="button" onClick={() => location.reload()}>
              Load it again
            </button>
          </Empty>
        </section>
      </>
    );
  }
}
