import { readSecret } from './settings.ts';
import { signToken } from './token.ts';

// node dist-examples/spreadsheets/print-token.js [name]
console.log(await signToken(readSecret(), process.argv[2] ?? 'you'));
