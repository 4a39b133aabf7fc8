import type { Program } from './program.ts';

/** The current examples of `pawl dev`, which start after the dashboard. */
export interface DevStage extends Partial<Program> {
  readonly controls: readonly DevControl[];
}

/** An accident that `pawl dev` can cause, so that a person sees its consequences. */
export interface DevControl {
  readonly id: string;
  /** The text of its button. */
  readonly title: string;
  /** What happens, and where to see it. */
  readonly about: string;
  /** The part of the dashboard that shows it, such as `locks`. */
  readonly look: string;
  /** The text of the button while `isOn`. */
  readonly undo?: string | undefined;
  isOn?(): boolean;
  /** @returns a sentence that says what was done */
  run(): Promise<string>;
}
