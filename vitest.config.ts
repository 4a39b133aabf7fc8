import { defineConfig, type ViteUserConfig } from 'vitest/config';
import { BaseSequencer, type TestSpecification } from 'vitest/node';
import './test/support/servers/without-certificates.ts';
import { ONLY_GUIDES } from './vitest.guides.config.ts';

/**
 * Long ones, of which Vitest does not know it in a new checkout: it begins with the largest files, and these are small. Begun
 * last, one of them keeps a single core busy when all others are done.
 */
const LONG = [
  'faults/lock/lock',
  'faults/queue/queue',
  'faults/actor/actor',
  'faults/capture/capture',
  'faults/files/files',
  'engine/postgres/embedded/embedded',
  'queue/postgres',
  'queue/postgres/silence',
  'queue/work/transaction/lost-transactions',
  'actor/work/silence',
  'capture/projection',
  'lock/dynamodb/contract',
  'lock/dynamodb/hazards',
  'lock/faults',
  'http/redaction/hidden',
  'actor/work/faults',
  'actor/work/handover',
  'actor/strangers',
  'queue/work/crash/crash',
  'queue/work/crash/poison',
  'cli/operate/dev',
  'cli/lock/lock-run',
  'files/disk',
  'files/s3',
  'lock/postgres',
  'lock/model/model',
  'actor/database',
  'matrix/queue',
  'matrix/actor',
  'engine/postgres/foreign/parsers',
  'engine/postgres/foreign/settings',
  'queue/work/large',
  'capture/copy/copy',
  'capture/copy/step-back',
  'queue/schedules',
  'queue/dynamodb/contract',
  'queue/dynamodb/model/model',
  'queue/flow/moving-children',
  'queue/flow/killed',
  'cli/commands/worker-health',
].map((name) => `/test/${name}.test.ts`);

class LongestFirst extends BaseSequencer {
  override async sort(files: TestSpecification[]): Promise<TestSpecification[]> {
    const isLong = ({ moduleId }: TestSpecification): boolean => LONG.some((name) => moduleId.endsWith(name));
    const sorted = await super.sort(files);
    return [...sorted.filter(isLong), ...sorted.filter((file) => !isLong(file))];
  }
}

// The files of a worker share its process, one after the other: what tests kill, pause and restart is in processes of their own,
// and a process for each file, with all modules loaded anew, takes 100 s more of the processor.
// The database server of a run is started once, by the globalSetup, and so is a DynamoDB, if a test asks for one.
const config: ViteUserConfig = defineConfig({
  test: {
    include: ['test/**/*.test.ts'],
    exclude: ONLY_GUIDES,
    globalSetup: ['test/support/servers/server.ts', 'test/support/servers/dynamodb-server.ts'],
    // What was built is run as it is, as users run it.
    server: { deps: { external: [/\/dist(-examples)?\//] } },
    pool: 'forks',
    isolate: false,
    // Much of a run is waiting: for leases to end, for processes to die. Two cores serve five files at a time:
    // seven take as long, at twice the load.
    maxWorkers: 5,
    sequence: { sequencer: LongestFirst },
    testTimeout: 120_000,
    hookTimeout: 60_000,
  },
});

export default config;
