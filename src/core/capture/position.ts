import type { LogPosition, OwnedState } from "../../ports/capture.ts";
import type { Timer } from "../../time/clock.ts";

export interface SavedPositionOptions {
  readonly state: OwnedState;
  /** Shortest time between two saves, in ms. */
  readonly intervalMs: number;
  readonly timer: Timer;
  readonly onSaved: () => void;
  readonly onFailed: (error: unknown) => void;
}

/** The position a capture has reached, saved every now and then while it moves. Saves never overlap. */
export class SavedPosition {
  readonly #options: SavedPositionOptions;
  #latest: LogPosition | null;
  #saved: LogPosition | null;
  #cancel: (() => void) | undefined;
  #saving: Promise<void> | undefined;
  #closed = false;

  constructor(options: SavedPositionOptions) {
    this.#options = options;
    this.#latest = options.state.position;
    this.#saved = options.state.position;
  }

  /** Where a follower begins; saved or not. */
  get latest(): LogPosition | null {
    return this.#latest;
  }

  /** Remembers a position, to be saved when the interval is over. */
  reached(position: LogPosition): void {
    this.#latest = position;
    this.#arm();
  }

  /**
   * Saves what is not saved yet, after a save that is under way, and nothing from then on. A failure is told to `onFailed`.
   *
   * @param save false where the state belongs to another process by now
   */
  async close(save: boolean): Promise<void> {
    this.#closed = true;
    this.#cancel?.();
    await this.#saving;
    if (save && this.#latest !== this.#saved) await this.#save();
  }

  #arm(): void {
    if (this.#closed || this.#latest === this.#saved) return;
    if (this.#cancel !== undefined || this.#saving !== undefined) return;
    const { timer, intervalMs } = this.#options;
    this.#cancel = timer(intervalMs, () => {
      this.#cancel = undefined;
      this.#saving = this.#save().finally(() => {
        this.#saving = undefined;
        this.#arm();
      });
    });
  }

  async #save(): Promise<void> {
    const { state, onSaved, onFailed } = this.#options;
    const position = this.#latest;
    if (position === null) return;
    try {
      await state.save(position);
      this.#saved = position;
      onSaved();
    } catch (error) {
      onFailed(error);
    }
  }
}
