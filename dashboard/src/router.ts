import { computed, signal } from '@preact/signals';

/** The address at which the dashboard is mounted. The server writes it into the page. */
const base = new URL('.', document.baseURI);

const current = signal(new URL(location.href));

/** The path below the base, without a slash at its beginning or end, as the address has it: `queues/100%25`. */
export const path = computed(() => current.value.pathname.slice(base.pathname.length).replace(/\/$/, ''));
/** The parts of the path, each decoded once; undefined if one cannot be decoded. An encoded slash does not end a name. */
export const parts = computed(() => decode(path.value));
/** The filters of the page. They are in the address, so that a user can pass it on. */
export const query = computed(() => current.value.searchParams);

function decode(raw: string): readonly string[] | undefined {
  try {
    return raw.split('/').map(decodeURIComponent);
  } catch {
    return undefined;
  }
}

export function urlOf(to: string): string {
  return new URL(to, base).href;
}

export function go(to: string, { replace = false }: { replace?: boolean } = {}): void {
  const url = new URL(to, base);
  if (url.href === current.value.href) return;
  history[replace ? 'replaceState' : 'pushState'](null, '', url);
  const isOtherPage = url.pathname !== current.value.pathname;
  current.value = url;
  if (isOtherPage) {
    scrollTo(0, 0);
    isArriving = true;
  }
}

let isArriving = false;

/** Whether this is the first heading since the user went to another page. It takes the focus, so that screen readers read it. */
export function arrive(): boolean {
  const was = isArriving;
  isArriving = false;
  return was;
}

/** Changes filters of this page. Values that are undefined or empty are removed. */
export function filter(values: Readonly<Record<string, string | undefined>>): void {
  const url = new URL(current.value);
  for (const [name, value] of Object.entries(values)) {
    if (value === undefined || value === '') url.searchParams.delete(name);
    else url.searchParams.set(name, value);
  }
  go(url.href, { replace: true });
}

/** The path of a queue, of its page and in the API. */
export function queueUrl(name: string): string {
  return `queues/${encodeURIComponent(name)}`;
}

/** The path of the page of a lock. */
export function lockUrl({ namespace, name }: { readonly namespace: string; readonly name: string }): string {
  return `locks/one?${new URLSearchParams({ ...(namespace === '' ? {} : { namespace }), name })}`;
}

export function startRouter(): void {
  addEventListener('popstate', () => {
    current.value = new URL(location.href);
  });
  document.addEventListener('click', (event) => {
    const link = event.target instanceof Element ? event.target.closest('a') : null;
    if (link === null || event.defaultPrevented || event.button !== 0) return;
    if (event.metaKey || event.ctrlKey || event.shiftKey || event.altKey) return;
    if (link.target !== '' || link.hasAttribute('download') || !link.href.startsWith(base.href)) return;
    // The browser itself opens answers of the API.
    if (new URL(link.href).pathname.startsWith(`${base.pathname}api/`)) return;
    event.preventDefault();
    go(link.href);
  });
}
