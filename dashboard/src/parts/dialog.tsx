import { signal } from '@preact/signals';
import type { ComponentChildren, JSX } from 'preact';
import { useEffect, useRef, useState } from 'preact/hooks';
import { visibleName } from '../text/visible.ts';

interface Question {
  readonly title: string;
  readonly text: ComponentChildren;
  readonly verb: string;
  readonly isDanger?: boolean;
  /** A text that the user must type, which prevents accidents. */
  readonly typed?: string;
  /** A text that the user may add, such as a reason. */
  readonly ask?: { readonly label: string; readonly isRequired?: boolean };
  readonly answer: (text: string) => void;
}

const question = signal<Question | undefined>(undefined);

/** Asks the user before an action. @returns the text that the user gave, or undefined if the user cancelled */
export function confirm(asked: Omit<Question, 'answer'>): Promise<string | undefined> {
  return new Promise((resolve) => {
    const answer = (text: string | undefined): void => {
      question.value = undefined;
      resolve(text);
    };
    question.value = { ...asked, answer };
    giveUp = () => answer(undefined);
  });
}

let giveUp = (): void => {};

export function Dialogs(): JSX.Element | null {
  const asked = question.value;
  return asked === undefined ? null : <Confirm key={asked.title} {...asked} />;
}

function Confirm({ title, text, verb, isDanger = false, typed, ask, answer }: Question): JSX.Element {
  const [word, setWord] = useState('');
  const [reason, setReason] = useState('');
  const isReady =
    (typed === undefined || word === typed || word === visibleName(typed)) &&
    (ask?.isRequired !== true || reason.trim() !== '');
  return (
    <Modal title={title} onClose={giveUp}>
      <form
        method="dialog"
        onSubmit={(event) => {
          event.preventDefault();
          if (isReady) answer(reason.trim());
        }}
      >
        <h2>{title}</h2>
        <div class="muted">{text}</div>
        {ask !== undefined && (
          <label>
            {ask.label}
            <input value={reason} maxLength={1000} onInput={(event) => setReason(event.currentTarget.value)} />
          </label>
        )}
        {typed !== undefined && (
          <label>
            <span>
              Type <code>{visibleName(typed)}</code> to go on
            </span>
            <input value={word} autoComplete="off" onInput={(event) => setWord(event.currentTarget.value)} />
          </label>
        )}
        <div class="actions">
          <button type="button" onClick={giveUp}>
            Cancel
          </button>
          <button type="submit" class={`primary ${isDanger ? 'danger' : ''}`} disabled={!isReady}>
            {verb}
          </button>
        </div>
      </form>
    </Modal>
  );
}

/** The browser's own dialog. It keeps the focus inside, and Escape closes it. */
export function Modal({
  title,
  onClose,
  children,
}: {
  title: string;
  onClose: () => void;
  children: ComponentChildren;
}): JSX.Element {
  const element = useRef<HTMLDialogElement>(null);
  useEffect(() => {
    element.current?.showModal();
  }, []);
  return (
    <dialog ref={element} aria-label={title} onClose={onClose} onCancel={onClose}>
      {children}
    </dialog>
  );
}
