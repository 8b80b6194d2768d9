package io.github.svcrelay.client;

import java.lang.System.Logger.Level;
import java.time.Duration;
import java.util.List;
import java.util.Map;
import java.util.Set;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.ExecutionException;
import java.util.concurrent.ExecutorService;
import java.util.concurrent.Executors;
import java.util.concurrent.FutureTask;
import java.util.concurrent.Semaphore;
import java.util.concurrent.TimeUnit;
import java.util.function.IntFunction;
import java.util.stream.Collectors;

/**
 * Takes messages of a source and calls the handler for each, until it is closed.
 *
 * @param <T> the handler's transaction
 */
public final class Worker<T> implements AutoCloseable {
  private static final long SHORTEST_PAUSE_MS = 1_000;
  private static final long LONGEST_PAUSE_MS = 10_000;
  /** Between two looks whether it stops, while it is busy. */
  private static final long LOOK_MS = 50;
  /** The service keeps as much of a reason. */
  private static final int MOST_REASON = 2000;

  private final PullSource<T> source;
  private final Handler<T> handler;
  private final Options options;
  /** A permit for each message that may be claimed. */
  private final Semaphore free;
  private final Set<Held> running = ConcurrentHashMap.newKeySet();
  private final ExecutorService threads = Executors.newCachedThreadPool(work -> new Thread(work, "svc-handler"));
  private final Thread loop = new Thread(this::claimAll, "svc-worker");
  private final CountDownLatch stopping = new CountDownLatch(1);

  /**
   * Starts to claim messages; {@link #close} stops it.
   *
   * @param handler called by several threads at a time if the options say so
   */
  public Worker(PullSource<T> source, Handler<T> handler, Options options) {
    this.source = source;
    this.handler = handler;
    this.options = options;
    free = new Semaphore(options.concurrency);
    loop.start();
  }

  /** How a message ended. */
  public enum Result { DONE, RETRY, DEAD, LOST, RELEASED }

  /** For metrics and logs. What a hook throws goes to the uncaught exception handler of its thread. */
  public interface Hooks {
    /** @param messages a claim that found at least one */
    default void claimed(List<PulledMessage> messages) {}

    /** @param duration of its handler, with the acknowledgement; zero if it did not run */
    default void ended(PulledMessage message, Result result, Duration duration) {}

    /** A claim, renewal or result that failed; the worker tries again. By default it is logged. */
    default void failed(Throwable error) {
      System.getLogger(Worker.class.getName()).log(Level.WARNING, "a request of the worker failed, it tries again", error);
    }
  }

  /**
   * What a worker does: {@code new Worker.Options().concurrency(4)}.
   *
   * @param concurrency most messages at a time; default 1
   * @param lease at least 3 ms; default 30 s
   * @param retryDelay before a message whose handler failed comes again, by its attempt from 1; default 1 s, doubled up to
   *     a minute
   * @param poll between two claims that find nothing; default 500 ms
   * @param stopTimeout for handlers at a stop; default 30 s
   * @param hooks default none
   */
  public record Options(int concurrency, Duration lease, IntFunction<Duration> retryDelay, Duration poll,
      Duration stopTimeout, Hooks hooks) {
    /** @throws IllegalArgumentException for a concurrency below 1, or a lease below 3 ms */
    public Options {
      if (concurrency < 1) throw new IllegalArgumentException("concurrency is " + concurrency + ", expected at least 1");
      if (lease.toMillis() < 3) throw new IllegalArgumentException("lease is " + lease + ", expected at least 3 ms");
    }

    /** The defaults. */
    public Options() {
      this(1, Duration.ofSeconds(30), attempt -> Duration.ofSeconds(Math.min(1L << Math.min(attempt - 1, 6), 60)),
          Duration.ofMillis(500), Duration.ofSeconds(30), new Hooks() {});
    }

    /** The same with this concurrency: most messages at a time. */
    public Options concurrency(int most) {
      return new Options(most, lease, retryDelay, poll, stopTimeout, hooks);
    }

    /** The same with another lease. */
    public Options lease(Duration duration) {
      return new Options(concurrency, duration, retryDelay, poll, stopTimeout, hooks);
    }

    /** The same with another delay after a failure. */
    public Options retryDelay(IntFunction<Duration> byAttempt) {
      return new Options(concurrency, lease, byAttempt, poll, stopTimeout, hooks);
    }

    /** The same with another pause after a claim that finds nothing. */
    public Options poll(Duration duration) {
      return new Options(concurrency, lease, retryDelay, duration, stopTimeout, hooks);
    }

    /** The same with another time for handlers at a stop. */
    public Options stopTimeout(Duration duration) {
      return new Options(concurrency, lease, retryDelay, poll, duration, hooks);
    }

    /** The same with hooks. */
    public Options hooks(Hooks all) {
      return new Options(concurrency, lease, retryDelay, poll, stopTimeout, all);
    }
  }

  /**
   * Claims no more, lets handlers end for {@code stopTimeout}, cancels the others, and gives back the rest. Returns when
   * nothing runs. An interrupt cancels at once, and returns with the flag set.
   */
  @Override
  public void close() {
    stopping.countDown();
    try {
      loop.join();
      if (!free.tryAcquire(options.concurrency, options.stopTimeout.toMillis(), TimeUnit.MILLISECONDS)) {
        running.forEach(Held::cancel);
        free.acquire(options.concurrency);
      }
      free.release(options.concurrency);
    } catch (InterruptedException error) {
      running.forEach(Held::cancel);
      Thread.currentThread().interrupt();
    }
    threads.shutdown();
  }

  private boolean isStopping() {
    return stopping.getCount() == 0;
  }

  private void claimAll() {
    long pauseMs = 0;
    while (!isStopping()) {
      try {
        if (stopping.await(pauseMs, TimeUnit.MILLISECONDS)) return;
        if (!free.tryAcquire(LOOK_MS, TimeUnit.MILLISECONDS)) continue;
        int most = 1 + free.drainPermits();
        int taken = 0;
        try {
          long sentAt = System.nanoTime();
          PullSource.Claim claim = source.claim(most, options.lease);
          if (!claim.messages().isEmpty()) threads.execute(new Held(claim, sentAt));
          taken = claim.messages().size();
        } finally {
          free.release(most - taken);
        }
        pauseMs = taken > 0 ? 0 : options.poll.toMillis();
      } catch (Throwable error) {
        failed(error);
        pauseMs = Math.min(Math.max(2 * pauseMs, SHORTEST_PAUSE_MS), LONGEST_PAUSE_MS);
      }
    }
  }

  private void failed(Throwable error) {
    hook(() -> options.hooks.failed(causeOf(error)));
  }

  private static void hook(Runnable call) {
    try {
      call.run();
    } catch (Throwable error) {
      Thread thread = Thread.currentThread();
      thread.getUncaughtExceptionHandler().uncaughtException(thread, error);
    }
  }

  private static Throwable causeOf(Throwable error) {
    return error instanceof ExecutionException ? error.getCause() : error;
  }

  /** A claim, and its messages that have not ended. Its thread renews the lease while others call the handler. */
  private final class Held implements Runnable {
    private final PullSource.Claim claim;
    private final Map<String, Own> open = new ConcurrentHashMap<>();
    private long renewedAt;

    Held(PullSource.Claim claim, long claimedAt) {
      this.claim = claim;
      renewedAt = claimedAt;
      for (PulledMessage message : claim.messages()) open.put(message.id(), new Own(message));
    }

    void cancel() {
      open.values().forEach(own -> own.task.cancel(true));
    }

    @Override
    public void run() {
      running.add(this);
      hook(() -> options.hooks.claimed(claim.messages()));
      try {
        handleAndRenew();
        List<String> left = open.values().stream().filter(own -> !own.isLost).map(own -> own.message.id()).toList();
        if (!left.isEmpty()) source.release(claim, left);
      } catch (Throwable error) {
        failed(error);
      }
      running.remove(this);
      for (Own own : open.values()) end(own, own.isLost ? Result.LOST : Result.RELEASED);
    }

    private void handleAndRenew() throws InterruptedException {
      Map<String, List<Own>> chains = claim.messages().stream().collect(Collectors.groupingBy(
          message -> message.aggregateId() == null ? "id " + message.id() : "of " + message.aggregateId(),
          Collectors.mapping(message -> open.get(message.id()), Collectors.toList())));
      CountDownLatch handling = new CountDownLatch(chains.size());
      for (List<Own> chain : chains.values()) {
        threads.execute(() -> {
          handleAll(chain);
          handling.countDown();
        });
      }
      long third = options.lease.toNanos() / 3;
      long triedAt = renewedAt;
      while (!handling.await(triedAt + third - System.nanoTime(), TimeUnit.NANOSECONDS)) {
        triedAt = System.nanoTime();
        renew(triedAt, third);
      }
    }

    private void renew(long startedAt, long timeout) {
      Set<String> kept = Set.of();
      List<String> ids = List.copyOf(open.keySet());
      FutureTask<Set<String>> renewal = new FutureTask<>(() -> source.renew(claim, ids, options.lease));
      try {
        threads.execute(renewal);
        kept = renewal.get(timeout, TimeUnit.NANOSECONDS);
        renewedAt = startedAt;
      } catch (Exception error) {
        renewal.cancel(true);
        failed(error);
        // Until the lease is over, the next renewal may succeed.
        if (System.nanoTime() - renewedAt < options.lease.toNanos()) return;
      }
      for (Own own : open.values()) {
        if (kept.contains(own.message.id())) continue;
        own.isLost = true;
        own.task.cancel(true);
      }
    }

    /** Messages of one aggregate in order, up to the first that is not handled; what is left is given back with the claim. */
    private void handleAll(List<Own> chain) {
      for (int n = 0; n < chain.size() && !chain.get(n).isLost && !isStopping(); n++)
        if (!handle(chain.get(n), chain.subList(n + 1, chain.size()))) return;
    }

    /** @return whether the later messages of its aggregate may be handled */
    private boolean handle(Own own, List<Own> later) {
      own.startedAt = System.nanoTime();
      try {
        boolean isHeld = source.handled(claim, own.message.id(), own::run);
        end(own, isHeld ? Result.DONE : Result.LOST);
        return isHeld;
      } catch (Throwable error) {
        if (own.isLost) end(own, Result.LOST);
        // What is cancelled, but not lost, is given back with the rest of the claim.
        return !own.isLost && !own.task.isCancelled() && fail(own, later, causeOf(error));
      }
    }

    private boolean fail(Own own, List<Own> later, Throwable error) {
      String id = own.message.id();
      try {
        String text = error.getMessage() == null ? error.toString() : error.getMessage();
        // No database stores a NUL, or half of a surrogate pair.
        String reason = text.substring(0, Math.min(text.length(), MOST_REASON)).replaceAll("[\\x00\\p{Cs}]", "\uFFFD");
        boolean isHeld = error instanceof DeadMessageException && source.dead(claim, id, reason);
        Result result = isHeld ? Result.DEAD : source.retry(claim, id, delayOf(own, error), reason);
        end(own, result);
        if (!isHeld && result != Result.LOST) later.forEach(each -> end(each, Result.RELEASED));
        return isHeld;
      } catch (Throwable failure) {
        // Its lease ends, and it comes again.
        failed(failure);
        end(own, Result.LOST);
        return false;
      }
    }

    private Duration delayOf(Own own, Throwable error) {
      return error instanceof RetryMessageException retry ? retry.delay : options.retryDelay.apply(own.message.attempt());
    }

    private void end(Own own, Result result) {
      if (open.remove(own.message.id()) == null) return;
      Duration duration = Duration.ofNanos(own.startedAt == 0 ? 0 : System.nanoTime() - own.startedAt);
      hook(() -> options.hooks.ended(own.message, result, duration));
      free.release();
    }
  }

  /** A message, and its handler as a task that a cancellation interrupts. */
  private final class Own {
    private final PulledMessage message;
    private final FutureTask<?> task;
    private volatile boolean isLost;
    private long startedAt;
    private T transaction;

    Own(PulledMessage message) {
      this.message = message;
      task = new FutureTask<>(() -> {
        handler.handle(message, transaction);
        return null;
      });
    }

    /** @throws java.util.concurrent.CancellationException when it has been cancelled, even if the handler returned */
    void run(T given) throws Exception {
      transaction = given;
      task.run();
      // The interrupt was for the handler alone.
      Thread.interrupted();
      task.get();
    }
  }
}
