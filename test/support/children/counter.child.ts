// Counts while it runs, answers what it is sent, fails when told so.
import { createInterface } from 'node:readline';

interface Order {
  fail?: string;
}

let count: number = 0;
setInterval(() => {
  count += 1;
}, 5);
console.log('not a message');
console.log(JSON.stringify({ ready: process.argv[2], color: process.env['COLOR'] }));
for await (const line of createInterface({ input: process.stdin })) {
  const { fail }: Order = JSON.parse(line);
  if (fail !== undefined) throw new Error(fail);
  console.log(JSON.stringify({ count }));
}
