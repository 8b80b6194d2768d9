import vm from "node:vm";
import NodeEnvironment from "jest-environment-node";

/**
 * Jest's environment for Node.js in a context without interceptors. Jest's own context asks a proxy at each look at a global, as `Math`
 * or `Promise`, which takes thirty times as long and was most of the time of what computes.
 */
export default class PlainContext extends NodeEnvironment {
  constructor(config, context) {
    super(config, context);
    const plain = vm.createContext(vm.constants.DONT_CONTEXTIFY);
    const itsOwn = new Set(Reflect.ownKeys(plain));
    // What jest shares between the contexts, because Node.js makes and checks them.
    for (const shared of ["Buffer", "ArrayBuffer", "Uint8Array"]) itsOwn.delete(shared);
    for (const name of Reflect.ownKeys(this.global)) {
      if (!itsOwn.has(name)) defineLazily(plain, name, this.global);
    }
    plain.global = plain;
    plain.Symbol.dispose ??= Symbol.dispose;
    plain.Symbol.asyncDispose ??= Symbol.asyncDispose;
    // swc's helper for `using` names this variable and defines another: two errors at once would be a ReferenceError.
    plain._SuppressedError = SuppressedErrors;
    plain.Error.stackTraceLimit = this.global.Error.stackTraceLimit;
    this.context = plain;
    this.global = plain;
    this.moduleMocker = new this.moduleMocker.constructor(plain);
    this.fakeTimersModern = new this.fakeTimersModern.constructor({ config: config.projectConfig, global: plain });
  }
}

/** What is thrown when a test and the disposal of what it used both fail: tells both. */
class SuppressedErrors extends Error {
  name = "SuppressedError";

  constructor(error, suppressed) {
    super(`${error?.message ?? error}; before it: ${suppressed?.message ?? suppressed}`, { cause: suppressed });
  }
}

/** A property that is read from the other object when it is first used: some globals load what they need then. */
function defineLazily(target, name, from) {
  const { enumerable } = Object.getOwnPropertyDescriptor(from, name);
  const define = (value) =>
    Object.defineProperty(target, name, { value, configurable: true, enumerable, writable: true });
  Object.defineProperty(target, name, {
    configurable: true,
    enumerable,
    get() {
      const value = from[name];
      define(value);
      return value;
    },
    set: define,
  });
}
