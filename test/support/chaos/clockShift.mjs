/**
 * Preload of a replica whose clock is wrong: `CHAOS_CLOCK=<shift ms>,<period ms>` puts `Date` ahead by the shift, and from period to period
 * behind and ahead in turn. The monotonic clock does not change, as when somebody sets the time of a machine.
 */
const [shiftMs = 0, periodMs = 0] = (process.env.CHAOS_CLOCK ?? "").split(",").map(Number);
const SystemDate = Date;
let offset = shiftMs;
setInterval(() => {
  offset = -offset;
}, periodMs).unref();

class ShiftedDate extends SystemDate {
  constructor(...parts) {
    if (parts.length === 0) super(SystemDate.now() + offset);
    else super(...parts);
  }

  static now() {
    return SystemDate.now() + offset;
  }
}
globalThis.Date = ShiftedDate;
