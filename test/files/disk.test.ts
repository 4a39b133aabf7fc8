import { tmpdir } from 'node:os';
import { describeFiles } from './contract.ts';
import { diskStore } from './world.ts';

describeFiles('disk', () => diskStore(tmpdir()));
