// A store that speaks S3, in a process of its own: tells how to reach it, and ends with its standard input.
const { faultyStore } = await import(new URL('../../dist/testing/index.js', import.meta.url).href);
const store = await faultyStore();
console.log(JSON.stringify(store.connection));
process.stdin.on('end', () => process.exit(0)).resume();
