import type { Command } from 'commander';
import { packageVersion } from '../engine/version.ts';
import { examples } from './setup/help.ts';
import { run } from './setup/run.ts';
import { findTarget } from './setup/target.ts';

interface Versions {
  readonly pawl: string;
  readonly node: string;
  readonly platform: string;
  readonly postgres: string | null;
}

/** `pawl version`: of this package and Node, and of the database if one is named. */
export function addVersion(program: Command): void {
  const command = program
    .command('version')
    .description('print the versions of pawl, Node and, if named, the database');
  examples(command, ['pawl version', 'pawl version -o json --url postgres://localhost/app']);
  command.action((_options: object, self: Command) =>
    run(self, async (cli) => {
      const target = await findTarget(cli.globals);
      const description = target === undefined ? undefined : await (await cli.open(target)).describe();
      const versions: Versions = {
        pawl: packageVersion(),
        node: process.versions.node,
        platform: `${process.platform} ${process.arch}`,
        postgres: description?.serverVersion ?? null,
      };
      cli.out.one(
        versions,
        [
          { title: 'pawl', of: (row) => row.pawl },
          { title: 'node', of: (row) => row.node },
          { title: 'platform', of: (row) => row.platform },
          { title: 'postgres', of: (row) => row.postgres },
        ],
        versions.pawl,
      );
    }),
  );
}
