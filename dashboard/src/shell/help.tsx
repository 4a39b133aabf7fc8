import type { JSX } from 'preact';
import { Modal } from '../parts/dialog.tsx';
import { isHelpOpen, KEYS } from './keys.ts';

/** The list of the keys and their actions. */
export function Help(): JSX.Element | null {
  if (!isHelpOpen.value) return null;
  const close = (): void => {
    isHelpOpen.value = false;
  };
  return (
    <Modal title="Keys" onClose={close}>
      <form method="dialog" onSubmit={close}>
        <h2>Keys</h2>
        <dl class="facts">
          {KEYS.map(([keys, does]) => (
            <>
              <dt>
                {keys.split(' ').map((key) => (
                  <>
                    <kbd>{key}</kbd>{' '}
                  </>
                ))}
              </dt>
              <dd>{does}</dd>
            </>
          ))}
        </dl>
        <div class="actions">
          <button type="submit">Close</button>
        </div>
      </form>
    </Modal>
  );
}
