import type { TurnCommit } from '../store.ts';

/** A text that no turn has: a single control character. */
const NONE = '\u0001';

/** The parameters of the statement that commits turns: an array for each column, or null if no turn has a value in it. */
export function commitValues(worker: number, turns: readonly TurnCommit[]): unknown[] {
  const all = <T>(of: (turn: TurnCommit) => T | undefined, nothing: T): T[] | null => {
    let some = false;
    const list = turns.map((turn) => {
      const value = of(turn);
      some ||= value !== undefined;
      return value ?? nothing;
    });
    return some ? list : null;
  };
  return [
    worker,
    turns.map(({ id }) => id),
    turns.map(({ epoch }) => epoch),
    turns.map(({ kind }) => kind),
    all(({ waitMs }) => waitMs, Number.NaN),
    turns.map(({ from }) => from),
    all(({ to }) => to, NONE),
    all(({ reason }) => reason, NONE),
    all(({ fields }) => fields, NONE),
    all(({ version }) => version, -1),
    all(({ delta }) => (delta === undefined ? undefined : JSON.stringify(delta)), 'null'),
    all(({ deadlineMs }) => deadlineMs, Number.NaN),
    all(({ error }) => error, NONE),
    all(({ result }) => result, NONE),
    all(({ children }) => children, 0),
    turns.some(({ keepsFields }) => keepsFields) ? turns.map(({ keepsFields = false }) => keepsFields) : null,
    all(({ timers }) => timers, 'null'),
    all(({ timerAtMs }) => timerAtMs, Number.NaN),
  ];
}
