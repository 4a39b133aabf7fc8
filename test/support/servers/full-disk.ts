import { constants, promises as fs } from 'node:fs';

/** A disk without room, below the code that writes to it: for roles that may not mount a small one. */
export interface FullDisk {
  /** From now on no file under it becomes longer, and none is made. Files are written in place, renamed, linked and deleted. */
  fill(): void;
  makeRoom(): void;
  [Symbol.dispose](): void;
}

/** Makes the folder, and what is in it, a disk whose room can be taken away, for this process. */
export async function fullDisk(dir: string, isFull: () => boolean = () => false): Promise<FullDisk> {
  let isFilled = false;
  const paths = new WeakMap<object, string>();
  const refuse = (path: unknown, call: string): void => {
    if (String(path).startsWith(dir) && (isFilled || isFull())) throw noRoom(call);
  };
  const probe = await fs.open('/dev/null', 'r');
  const handles = Object(Object.getPrototypeOf(probe));
  await probe.close();
  const undo = [
    wrap(fs, 'open', async (call, path, flags = 'r', mode = 0o666) => {
      const isMaking = typeof flags === 'string' ? /[wa]/.test(flags) : (Number(flags) & constants.O_CREAT) !== 0;
      if (isMaking && !(await isThere(path))) refuse(path, 'open');
      const file = Object(await call(path, flags, mode));
      paths.set(file, String(path));
      return file;
    }),
    wrap(fs, 'mkdir', async (call, path, ...rest) => {
      if (!(await isThere(path))) refuse(path, 'mkdir');
      return call(path, ...rest);
    }),
    wrap(handles, 'writeFile', async (call, ...given) => {
      refuse(paths.get(call.self), 'write');
      return call(...given);
    }),
    wrap(handles, 'write', async (call, bytes, offset = 0, length, position) => {
      const end = Number(position ?? Infinity) + Number(length ?? Reflect.get(Object(bytes), 'length'));
      const { size } = await fs.stat(paths.get(call.self) ?? '/dev/null');
      if (end > size) refuse(paths.get(call.self), 'write');
      return call(bytes, offset, length, position);
    }),
  ];
  return {
    fill: () => {
      isFilled = true;
    },
    makeRoom: () => {
      isFilled = false;
    },
    [Symbol.dispose]: () => {
      for (const one of undo) one();
    },
  };
}

interface Call {
  (...given: readonly unknown[]): Promise<unknown>;
  /** What it is a method of. */
  readonly self: object;
}

/** Puts a function before a method. @returns takes it away again */
function wrap(owner: object, name: string, before: (call: Call, ...given: unknown[]) => Promise<unknown>): () => void {
  const method = Reflect.get(owner, name);
  Reflect.set(owner, name, function (this: object, ...given: unknown[]) {
    const call = (...passed: readonly unknown[]): Promise<unknown> => Reflect.apply(method, this, passed);
    return before(Object.assign(call, { self: this }), ...given);
  });
  return () => void Reflect.set(owner, name, method);
}

async function isThere(path: unknown): Promise<boolean> {
  return fs.lstat(String(path)).then(
    () => true,
    () => false,
  );
}

function noRoom(call: string): Error {
  return Object.assign(new Error(`ENOSPC: no space left on device, ${call}`), { code: 'ENOSPC', syscall: call });
}
