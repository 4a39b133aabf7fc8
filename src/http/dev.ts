import type { Program } from './program.ts';

/** What `pawl dev` has on its stage just now: its examples begin after the dashboard does. */
export interface DevStage extends Partial<Program> {
  readonly controls: readonly DevControl[];
}

/** Something that `pawl dev` can make happen, so that one sees what follows. */
export interface DevControl {
  readonly id: string;
  /** On its button. */
  readonly title: string;
  /** What happens, and where to look. */
  readonly about: string;
  /** The part of the dashboard where it can be seen, such as `locks`. */
  readonly look: string;
  /** What the button says when `isOn`. */
  readonly undo?: string | undefined;
  isOn?(): boolean;
  /** @returns what was done, in a sentence */
  run(): Promise<string>;
}
