// Explores every order of the requests of a caller that asks an actor and takes the question back, and of workers whose turns read and answer
// it, with crashes, lost answers, live workers that are declared dead, and requests that are carried out twice. Every decision is made by the
// functions of the library. A transaction is one step, which the service carries out once.
import {
  claimed,
  committed,
  F,
  isCommitted,
  isFree,
  type Mark,
  markOf,
  readHead,
  signalled,
  type TurnEnd,
} from '../../../../src/actor/dynamodb/heads/head.ts';
import {
  newQuestion,
  questionIn,
  questionRead,
  questionTakenBack,
} from '../../../../src/actor/dynamodb/heads/question.ts';
import { rescued } from '../../../../src/actor/dynamodb/heads/rescued.ts';
import { applied, type Change, type Fields } from '../../../../src/engine/dynamodb/index.ts';
import type { Protocol, Step } from '../../../support/history/explore.ts';

export interface QuestionsModelOptions {
  readonly workers: number;
  /** Whether turns give an answer to what they read. */
  readonly answers: boolean;
  /** Its sender waits for ever. */
  readonly isPatient?: boolean;
  /** How often something else wakes the actor. */
  readonly raises?: number;
  readonly crashes?: number;
  readonly losses?: number;
  readonly doubles?: number;
  readonly suspicions?: number;
  readonly plant?: QuestionsPlant;
}

/** Bugs to be found. */
export type QuestionsPlant =
  | 'a commit marks no question'
  | 'a question that was read is taken back'
  | 'a question that was taken back is read'
  | 'a question is taken back without its message'
  | 'what was read is not removed before a claim'
  | 'what runs is not marked';

interface Worker {
  readonly id: number;
  readonly at: 'rest' | 'reads' | 'runs' | 'commits' | 'is refused' | 'drops' | 'dead';
  readonly epoch: number;
  /** It was given the message. */
  readonly isGiven: boolean;
  readonly commit: { readonly head: Change; readonly question: Change | null } | null;
  /** The first request may have been carried out. */
  readonly isRepeated: boolean;
}

type Write = { readonly kind: 'head'; readonly change: Change } | { readonly kind: 'drop message' };

export interface QuestionsState {
  readonly head: Fields;
  readonly message: boolean;
  readonly question: Fields;
  /** Rows of the line. */
  readonly isDue: boolean;
  readonly isSignalled: boolean;
  readonly sender:
    | 'begin'
    | 'waits'
    | 'gives up'
    | 'answered'
    | 'unanswered'
    | 'took it back'
    | 'knows that it was read';
  readonly workers: readonly Worker[];
  readonly alive: readonly number[];
  /** How many turns that were committed have read the message. */
  readonly read: number;
  readonly flying: readonly Write[];
  readonly left: Readonly<Record<'raises' | 'crashes' | 'losses' | 'doubles' | 'suspicions', number>>;
}

/** More turns than there is anything for. */
const MOST_TURNS = 20;

const RESTING = { at: 'rest', epoch: 0, isGiven: false, commit: null, isRepeated: false } as const;

export function questionsModel(options: QuestionsModelOptions): Protocol<QuestionsState> {
  const { workers, raises = 0, crashes = 0, losses = 0, doubles = 0, suspicions = 0 } = options;
  const ids = Array.from({ length: workers }, (_, at) => 7001 + at);
  return {
    start: {
      head: { [F.createdAt]: 0, [F.visit]: 1, [F.wakeAt]: 0, [F.state]: 's' },
      message: false,
      question: {},
      isDue: true,
      isSignalled: false,
      sender: 'begin',
      workers: ids.map((id) => ({ ...RESTING, id })),
      alive: ids,
      read: 0,
      flying: [],
      left: { raises, crashes, losses, doubles, suspicions },
    },
    steps: (state) => [
      ...senderSteps(state, options),
      ...state.workers.flatMap((_, index) => workerSteps(state, index, options)),
      ...rescueSteps(state),
      ...(state.left.raises > 0
        ? [{ what: 'a raise', state: { ...state, isSignalled: true, ...spend(state, 'raises') } }]
        : []),
      ...state.flying.map((write, index) => ({
        what: `a copy arrives: ${JSON.stringify(write)}`,
        state: { ...state, ...after(state, write), flying: state.flying.toSpliced(index, 1) },
      })),
    ],
    fault: ({ sender, read, head }) => {
      if (readHead(head).epoch > MOST_TURNS) return 'a turn is given back again and again';
      if (read > 1) return 'a message was read by two turns';
      if (sender === 'took it back' && read > 0) return 'a question was taken back, and was read';
      const isTold = sender === 'answered' || sender === 'unanswered' || sender === 'knows that it was read';
      return isTold && read === 0 ? 'its sender was told that it was read, and it was not' : undefined;
    },
    isOver: ({ sender, head, message, workers: all, isDue, isSignalled }) =>
      sender !== 'begin' &&
      sender !== 'waits' &&
      sender !== 'gives up' &&
      all.every(({ at }) => at === 'rest' || at === 'dead') &&
      (!message || JSON.stringify(readHead(head).gone) === '[1]') &&
      readHead(head).worker === 0 &&
      !isDue &&
      !isSignalled,
  };
}

function after(state: QuestionsState, write: Write): Partial<QuestionsState> | undefined {
  if (write.kind === 'drop message') return { message: false };
  const head = applied(state.head, write.change);
  return head && { head };
}

function senderSteps(
  state: QuestionsState,
  { plant, isPatient = false }: QuestionsModelOptions,
): Step<QuestionsState>[] {
  const become = (
    what: string,
    sender: QuestionsState['sender'],
    more: Partial<QuestionsState> = {},
  ): Step<QuestionsState> => ({
    what: `the sender ${what}`,
    state: { ...state, ...more, sender },
  });
  switch (state.sender) {
    case 'begin':
      return [become('asks', 'waits', { message: true, question: newQuestion(9), isSignalled: true })];
    case 'waits': {
      const seen = questionIn(state.question);
      if (seen.state === 'answered' || seen.state === 'unanswered') return [become('finds the answer', seen.state)];
      return isPatient ? [] : [become('gives up', 'gives up')];
    }
    case 'gives up': {
      const change = questionTakenBack();
      const isBlind = plant === 'a question that was read is taken back';
      const isDone = applied(state.question, isBlind ? { ...change, expect: {} } : change) !== undefined;
      if (!isDone) return [become('is refused', 'knows that it was read')];
      const isKept = plant === 'a question is taken back without its message';
      return [become('takes it back', 'took it back', { question: {}, message: isKept && state.message })];
    }
    case 'answered':
    case 'unanswered':
    case 'took it back':
    case 'knows that it was read':
      return [];
  }
}

function rescueSteps(state: QuestionsState): Step<QuestionsState>[] {
  const head = readHead(state.head);
  if (head.worker === 0 || state.alive.includes(head.worker)) return [];
  const saved = rescued(head, head.worker, head.epoch - 1, { isSuspected: true, now: 0, error: 'lost' });
  const freed = saved?.change === undefined ? undefined : applied(state.head, saved.change);
  return freed === undefined ? [] : [{ what: 'the actor is rescued', state: { ...state, head: freed, isDue: true } }];
}

type Become = (what: string, next: Partial<Worker>, more?: Partial<QuestionsState>) => Step<QuestionsState>;

function spend(state: QuestionsState, what: keyof QuestionsState['left']): Pick<QuestionsState, 'left'> {
  return { left: { ...state.left, [what]: state.left[what] - 1 } };
}

function workerSteps(state: QuestionsState, index: number, options: QuestionsModelOptions): Step<QuestionsState>[] {
  const me = state.workers[index];
  if (me === undefined || me.at === 'dead') return [];
  const become: Become = (what, next, more = {}) => ({
    what: `worker ${me.id} ${what}`,
    state: { ...state, ...more, workers: state.workers.with(index, { ...me, ...next }) },
  });
  const all: Step<QuestionsState>[] = [];
  const gone = state.alive.filter((id) => id !== me.id);
  const isAlive = state.alive.includes(me.id);
  if (isAlive && gone.length > 0) {
    if (state.left.crashes > 0)
      all.push(become('dies', { ...RESTING, at: 'dead' }, { alive: gone, ...spend(state, 'crashes') }));
    if (state.left.suspicions > 0)
      all.push(become('is declared dead', {}, { alive: gone, ...spend(state, 'suspicions') }));
  }
  const head = readHead(state.head);
  switch (me.at) {
    case 'rest':
      return isAlive ? [...all, ...restSteps(state, me, become, options)] : all;
    case 'reads':
      return [...all, become('reads the messages', { at: 'runs', isGiven: state.message })];
    case 'runs':
      return [...all, become('decides on its commit', { at: 'commits', commit: commitOf(me, markOf(head), options) })];
    case 'commits': {
      if (me.commit === null) return all;
      const head1 = applied(state.head, me.commit.head);
      const question = me.commit.question === null ? state.question : applied(state.question, me.commit.question);
      const isRefused = head1 === undefined || question === undefined;
      if (isRefused) return [...all, become('is refused', { at: 'is refused' })];
      const isWoken = readHead(head1).wakeAt !== undefined;
      const done = {
        head: head1,
        question,
        read: state.read + Number(me.isGiven && me.commit.question !== undefined),
        isDue: state.isDue || isWoken,
      };
      all.push(become('commits', me.isGiven ? { at: 'drops' } : RESTING, done));
      if (state.left.losses > 0)
        all.push(become('commits, unheard', { isRepeated: true }, { ...done, ...spend(state, 'losses') }));
      return all;
    }
    case 'is refused':
      return [...all, refused(state, me, become, options)];
    case 'drops': {
      const write: Write = { kind: 'drop message' };
      all.push(become('drops the message', RESTING, after(state, write)));
      if (state.left.doubles > 0) {
        all.push(
          become('drops the message, twice', RESTING, {
            ...after(state, write),
            flying: [...state.flying, write],
            ...spend(state, 'doubles'),
          }),
        );
      }
      return all;
    }
  }
}

function restSteps(
  state: QuestionsState,
  me: Worker,
  become: Become,
  { plant }: QuestionsModelOptions,
): Step<QuestionsState>[] {
  const head = readHead(state.head);
  if (!state.isDue && !state.isSignalled) return [];
  if (!isFree(head)) {
    if (!state.isSignalled) return [];
    const mark = plant === 'what runs is not marked' ? undefined : signalled(head, false);
    return [
      become('marks what runs', {}, { head: (mark && applied(state.head, mark)) ?? state.head, isSignalled: false }),
    ];
  }
  // What the last turn has read is removed before the next claim.
  const isLeft = head.gone.length > 0 && state.message && plant !== 'what was read is not removed before a claim';
  if (isLeft) return [become('removes what was read', {}, { message: false })];
  const claim = claimed(head, { worker: me.id, now: 0, retryMs: 0, inbox: [], answered: [] });
  const done = { head: applied(state.head, claim.change) ?? state.head, isDue: false, isSignalled: false };
  const next = { at: 'reads', epoch: claim.epoch } as const;
  const all = [become('claims it', next, done)];
  if (state.left.doubles > 0) {
    const flying: Write[] = [...state.flying, { kind: 'head', change: claim.change }];
    all.push(become('claims it, and a copy stays under way', next, { ...done, flying, ...spend(state, 'doubles') }));
  }
  return all;
}

function endOf({ epoch, id, isGiven }: Worker, kind: TurnEnd['kind']): TurnEnd {
  const common = { delta: undefined, timerAt: undefined, children: 0, semaphores: {}, set: {} };
  const isRead = isGiven && kind !== 'released';
  return {
    kind,
    epoch,
    worker: id,
    attempt: 1,
    visit: 1,
    waitMs: kind === 'released' ? 0 : undefined,
    gone: isRead ? [1] : [],
    ...common,
  };
}

function commitOf(me: Worker, raised: Mark, { answers, plant }: QuestionsModelOptions): Worker['commit'] {
  const { change } = committed(endOf(me, 'stay'), raised, 0);
  const mark = questionRead(answers ? '"yes"' : undefined);
  const isUnmarked = !me.isGiven || plant === 'a commit marks no question';
  const isBlind = plant === 'a question that was taken back is read';
  return { head: change, question: isUnmarked ? null : isBlind ? { ...mark, isThere: undefined } : mark };
}

/** It reads the head, then the question. */
function refused(
  state: QuestionsState,
  me: Worker,
  become: Become,
  options: QuestionsModelOptions,
): Step<QuestionsState> {
  const head = readHead(state.head);
  if (isCommitted(head, me.epoch)) return become('knows its commit again', me.isGiven ? { at: 'drops' } : RESTING);
  if (head.worker !== me.id || head.epoch !== me.epoch) return become('has lost its turn', RESTING);
  if (me.isGiven && questionIn(state.question).state === 'over') {
    // The turn is given back, and runs again.
    const freed = applied(state.head, committed(endOf(me, 'released'), markOf(head), 0).change);
    return become('gives its turn back', RESTING, { head: freed ?? state.head, isDue: true });
  }
  return become('decides anew', { at: 'commits', commit: commitOf(me, markOf(head), options) });
}
