import { defineConfig } from 'vite';

// Addresses are relative to <base>, which the server sets to wherever it is mounted. Nothing is inlined: the policy of the page
// allows no data: scripts or styles.
export default defineConfig({
  root: import.meta.dirname,
  base: './',
  build: {
    outDir: '../dist/dashboard',
    emptyOutDir: true,
    assetsInlineLimit: 0,
    modulePreload: { polyfill: false },
    target: 'es2022',
    reportCompressedSize: false,
  },
  oxc: { jsx: { runtime: 'automatic', importSource: 'preact' } },
});
