import { randomBytes } from 'node:crypto';
import { existsSync, readdirSync, readFileSync } from 'node:fs';
import { join, relative, sep } from 'node:path';
import { fileURLToPath } from 'node:url';
import { brotliCompressSync, constants } from 'node:zlib';
import { policyOfPage } from './protocol/headers.ts';

const TYPES: Readonly<Record<string, string>> = {
  html: 'text/html; charset=utf-8',
  js: 'text/javascript; charset=utf-8',
  css: 'text/css; charset=utf-8',
  svg: 'image/svg+xml',
  json: 'application/json; charset=utf-8',
  webmanifest: 'application/manifest+json',
  png: 'image/png',
};

interface Asset {
  readonly type: string;
  readonly plain: Buffer<ArrayBuffer>;
  readonly brotli: Buffer<ArrayBuffer>;
  readonly isHashed: boolean;
}

const PAGE = 'index.html';
const BEST = { params: { [constants.BROTLI_PARAM_QUALITY]: 9 } };

/** The folder of the built dashboard: in dist/, whether this code runs from there or from src/. */
const FOLDER = fileURLToPath(new URL('../../dist/dashboard/', import.meta.url));

/** The built dashboard, read into memory once. The set of files is then known, so no path of a request is ever opened. */
export class Assets {
  readonly #basePath: string;
  #files: ReadonlyMap<string, Asset> | undefined;

  constructor(basePath: string) {
    this.#basePath = basePath;
  }

  /** @param path  below the base path, without a slash in front @returns undefined if there is no such file */
  serve(path: string, acceptEncoding: string): Response | undefined {
    this.#files ??= this.#read();
    // Every page of the dashboard is the same file; its own code reads the address. Below a place a name may have dots.
    const isFile = path.startsWith('assets/') || /^[^/]+\.\w+$/.test(path);
    const asset = this.#files.get(isFile ? path : PAGE);
    if (asset === undefined) return undefined;
    if (asset === this.#files.get(PAGE)) return pageOf(asset);
    const isBrotli = /\bbr\b/.test(acceptEncoding);
    return new Response(isBrotli ? asset.brotli : asset.plain, {
      headers: {
        'content-type': asset.type,
        vary: 'accept-encoding',
        'cache-control': asset.isHashed ? 'public, max-age=31536000, immutable' : 'no-cache',
        ...(isBrotli ? { 'content-encoding': 'br' } : {}),
      },
    });
  }

  #read(): ReadonlyMap<string, Asset> {
    const files = new Map<string, Asset>();
    if (!existsSync(FOLDER)) return files;
    for (const entry of readdirSync(FOLDER, { recursive: true, withFileTypes: true })) {
      if (!entry.isFile()) continue;
      const path = join(entry.parentPath, entry.name);
      const name = relative(FOLDER, path).split(sep).join('/');
      const type = TYPES[name.split('.').at(-1) ?? ''];
      if (type !== undefined) files.set(name, this.#asset(name, type, readFileSync(path)));
    }
    return files;
  }

  #asset(name: string, type: string, content: Buffer): Asset {
    // Only the mount point is unknown before run time.
    const plain =
      name === PAGE
        ? Buffer.from(content.toString().replace('<base href="/">', `<base href="${this.#basePath}/">`))
        : Buffer.from(content);
    let brotli: Buffer<ArrayBuffer> | undefined;
    return {
      type,
      plain,
      // Compressing all of them takes a sixth of a second of the processor.
      get brotli() {
        return (brotli ??= Buffer.from(brotliCompressSync(plain, BEST)));
      },
      isHashed: name.startsWith('assets/'),
    };
  }
}

/** The page gets a nonce of its own, which its scripts carry. It has one kilobyte, so compression is not worth it. */
function pageOf({ plain, type }: Asset): Response {
  const nonce = randomBytes(16).toString('base64url');
  const html = plain
    .toString()
    .replaceAll(/<script |<link rel="modulepreload" /g, (tag) => `${tag}nonce="${nonce}" `)
    .replace('</head>', `<meta property="csp-nonce" nonce="${nonce}" /></head>`);
  const headers = { 'content-type': type, 'cache-control': 'no-store', 'content-security-policy': policyOfPage(nonce) };
  return new Response(html, { headers });
}
