import type { DevControl, DevStage, Program } from '../../http/index.ts';

/** The parts that the examples have registered so far: the dashboard starts before the examples do. */
export class Stage implements DevStage {
  readonly controls: DevControl[] = [];
  readonly queues: Program['queues'][number][] = [];
  readonly actors: Program['actors'][number][] = [];
  readonly captures: Program['captures'][number][] = [];
  readonly files: Program['files'][number][] = [];

  offer(control: DevControl): void {
    this.controls.push(control);
  }

  show({ queues = [], actors = [], captures = [], files = [] }: Partial<Program>): void {
    this.queues.push(...queues);
    this.actors.push(...actors);
    this.captures.push(...captures);
    this.files.push(...files);
  }
}
