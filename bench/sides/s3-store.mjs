// A store that speaks S3, in its own process. It prints how to connect to it, and exits when its standard input ends.
const { faultyStore } = await import(new URL('../../dist/testing/index.js', import.meta.url).href);
const store = await faultyStore();
console.log(JSON.stringify(store.connection));
process.stdin.on('end', () => process.exit(0)).resume();
