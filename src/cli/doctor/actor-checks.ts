import type { ActorHealth } from '../../actor/index.ts';
import { type Finding, ok, warn } from './finding.ts';

/** The findings of `pawl doctor` about actors. @param flags  the flags with which commands find the table */
export function checkActors(
  { unattended, held, lostWorkers, openPages }: ActorHealth,
  flags: readonly string[] = [],
): Finding[] {
  const [first] = held;
  const command = (...words: string[]): string => [...words, ...flags].join(' ');
  return [
    lostWorkers.length > 0
      ? warn(
          'actor workers',
          `lost and not yet replaced: ${lostWorkers.join(', ')}`,
          `start one: ${command('pawl worker --config FILE')}`,
        )
      : ok('actor workers', 'none is lost'),
    unattended.length > 0
      ? warn(
          'actors',
          `due, but no worker runs: ${unattended.join(', ')}`,
          `start one: ${command('pawl worker --config FILE')}`,
        )
      : ok('actors', 'none is due without a worker'),
    first === undefined
      ? ok('held actors', 'there are none')
      : warn('held actors', `${held.length}, the first: ${first.reason}`, command('pawl actor explain', first.actor)),
    openPages > 0 ? warn('pages', `${openPages} are open`, command('pawl page list')) : ok('pages', 'none is open'),
  ];
}
