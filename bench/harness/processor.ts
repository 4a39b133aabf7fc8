import { readFile } from 'node:fs/promises';

/** The unit of /proc. On every Linux that Node runs on, it counts 100 ticks a second. */
const TICK_MS = 10;

/**
 * Milliseconds of processor time that a process and its children have used so far. Children that have ended are included. Only on Linux,
 * from /proc. A rate depends on what else the machine does at the time. Processor time is the cost of the work, whatever else the machine does.
 */
export async function processorMs(pid: number): Promise<number> {
  const [own, children] = await Promise.all([
    ticks(pid, { withEnded: true }),
    readFile(`/proc/${pid}/task/${pid}/children`, 'utf8'),
  ]);
  const alive = children.split(' ').filter((child) => child.trim() !== '');
  // A child that ends at this moment is counted by the next call, among the ended children.
  const theirs = await Promise.all(alive.map((child) => ticks(Number(child), { withEnded: false }).catch(() => 0)));
  return [own, ...theirs].reduce((sum, each) => sum + each, 0) * TICK_MS;
}

/** @param withEnded  whether to add the children that have ended and that the process has waited for */
async function ticks(pid: number, { withEnded }: { withEnded: boolean }): Promise<number> {
  const stat = await readFile(`/proc/${pid}/stat`, 'utf8');
  // The name of the program is in parentheses and may contain blanks. utime, stime, cutime and cstime are numbers 14 to 17 of proc(5), from 1.
  const fields = stat
    .slice(stat.lastIndexOf(')') + 2)
    .split(' ')
    .map(Number);
  const [user = 0, system = 0, endedUser = 0, endedSystem = 0] = fields.slice(11, 15);
  return user + system + (withEnded ? endedUser + endedSystem : 0);
}
