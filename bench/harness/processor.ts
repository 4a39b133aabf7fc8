import { readFile } from 'node:fs/promises';

/** What /proc counts in: on every Linux that Node runs on, 100 a second. */
const TICK_MS = 10;

/**
 * Milliseconds of processor time that a process has taken so far, with its children, those that have ended included. Of Linux, from /proc.
 * A rate tells how fast something was on this machine just then; this says what it costs, whatever else the machine was at.
 */
export async function processorMs(pid: number): Promise<number> {
  const [own, children] = await Promise.all([
    ticks(pid, { withEnded: true }),
    readFile(`/proc/${pid}/task/${pid}/children`, 'utf8'),
  ]);
  const alive = children.split(' ').filter((child) => child.trim() !== '');
  // One that ends just now is among those that have ended the next time.
  const theirs = await Promise.all(alive.map((child) => ticks(Number(child), { withEnded: false }).catch(() => 0)));
  return [own, ...theirs].reduce((sum, each) => sum + each, 0) * TICK_MS;
}

/** @param withEnded  with the children that it has waited for */
async function ticks(pid: number, { withEnded }: { withEnded: boolean }): Promise<number> {
  const stat = await readFile(`/proc/${pid}/stat`, 'utf8');
  // The name, in parentheses, may hold blanks. utime, stime, cutime and cstime are numbers 14 to 17 of proc(5), from 1.
  const fields = stat
    .slice(stat.lastIndexOf(')') + 2)
    .split(' ')
    .map(Number);
  const [user = 0, system = 0, endedUser = 0, endedSystem = 0] = fields.slice(11, 15);
  return user + system + (withEnded ? endedUser + endedSystem : 0);
}
