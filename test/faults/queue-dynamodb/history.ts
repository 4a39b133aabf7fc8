import type { Note } from '../member/member.ts';
import type { Step } from './plan.ts';

/** The notes of a process. `name`: of a step, `client 0/3`. */
export type QueueEvent =
  | {
      readonly do: 'ask';
      readonly name: string;
      readonly step: Step;
      readonly nth: number;
      readonly after: string | null;
    }
  | { readonly do: 'told'; readonly name: string; readonly id: string }
  | { readonly do: 'sealed'; readonly name: string }
  | { readonly do: 'finished' }
  | { readonly do: 'begin'; readonly name: string; readonly id: string; readonly attempt: number };

/** A guarded write of a handler. Each key, and each job without a key, has a row with its effects, in the order of the commits. */
export interface Effect {
  readonly name: string;
  readonly id: string;
  /** The time just before its commit, by the clock of the notes. */
  readonly at: number;
}

/** The outcome of a job whose id a process got. */
export interface Outcome {
  readonly id: string;
  readonly status: string;
  readonly completions: number;
}

export interface QueueOnDynamoHistory {
  readonly events: readonly Note<QueueEvent>[];
  /** By the row. */
  readonly effects: ReadonlyMap<string, readonly Effect[]>;
  readonly outcomes: ReadonlyMap<string, Outcome>;
  readonly complaints: readonly { readonly rule: string; readonly about: string; readonly story: readonly string[] }[];
}

/** The row with the effects of a job. */
export function rowOf(name: string, key: string | null): string {
  return key === null ? `job ${name}` : `key ${key}`;
}

/** The name of the dead letter of a job. */
export function letterOf(name: string): string {
  return `${name} letter`;
}

/** The name of the callback of a batch. */
export function callbackOf(name: string): string {
  return `${name} done`;
}
