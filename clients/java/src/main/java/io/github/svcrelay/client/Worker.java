package io.github.svcrelay.client;

import io.github.svcrelay.client.WorkerHooks.Result;
import java.time.Duration;
import java.util.Collection;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.Set;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.ExecutionException;
import java.util.concurrent.ExecutorService;
import java.util.concurrent.Executors;
import java.util.concurrent.Future;
import java.util.concurrent.FutureTask;
import java.util.concurrent.ScheduledExecutorService;
import java.util.concurrent.Semaphore;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.atomic.AtomicInteger;
import java.util.stream.Collectors;

/** Takes messages of a source and calls the handler for each, until it is stopped. */
public final class Worker implements AutoCloseable {
  private static final long SHORTEST_PAUSE_MS = 1_000;
  private static final long LONGEST_PAUSE_MS = 10_000;
  /** Between two looks whether it stops, while it is busy. */
  private static final long LOOK_MS = 50;
  /** The service keeps as much of a reason. */
  private static final int MOST_REASON = 2000;

  private final WorkerOptions<Object> options;
  private final PullSource<Object> source;
  /** A permit for each message that may be claimed. */
  private final Semaphore free;
  private final Set<Held> running = ConcurrentHashMap.newKeySet();
  private final ExecutorService handlers = Executors.newCachedThreadPool(work -> new Thread(work, "svc-handler"));
  private final ScheduledExecutorService renewals;
  private final Thread loop = new Thread(this::claimAll, "svc-worker");
  private final CountDownLatch stopping = new CountDownLatch(1);

  private Worker(WorkerOptions<Object> options) {
    this.options = options;
    source = options.source;
    free = new Semaphore(options.concurrency);
    renewals = Executors.newScheduledThreadPool(options.concurrency, work -> new Thread(work, "svc-renewal"));
  }

  @SuppressWarnings("unchecked")
  public static <T> Worker start(WorkerOptions<T> options) {
    Worker worker = new Worker((WorkerOptions<Object>) options);
    worker.loop.start();
    return worker;
  }

  /** Stops with the {@code stopTimeout} of the options. */
  @Override
  public void close() {
    stop(options.stopTimeout);
  }

  /**
   * Claims no more, lets handlers end for {@code timeout}, cancels the others, and gives back the rest. Returns when nothing
   * runs. An interrupt cancels at once, and returns with the flag set.
   */
  public void stop(Duration timeout) {
    stopping.countDown();
    try {
      loop.join();
      if (!free.tryAcquire(options.concurrency, timeout.toMillis(), TimeUnit.MILLISECONDS)) {
        running.forEach(Held::cancel);
        free.acquire(options.concurrency);
      }
      free.release(options.concurrency);
    } catch (InterruptedException error) {
      running.forEach(Held::cancel);
      Thread.currentThread().interrupt();
    }
    handlers.shutdown();
    renewals.shutdown();
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
          Claim claim = source.claim(most, options.lease);
          taken = claim.messages().size();
          if (taken > 0) start(claim, sentAt);
        } finally {
          free.release(most - taken);
        }
        pauseMs = taken > 0 ? 0 : options.poll.toMillis();
      } catch (Throwable error) {
        hook(() -> options.hooks.failed(error));
        pauseMs = Math.min(Math.max(2 * pauseMs, SHORTEST_PAUSE_MS), LONGEST_PAUSE_MS);
      }
    }
  }

  private void start(Claim claim, long sentAt) {
    hook(() -> options.hooks.claimed(claim.messages()));
    Map<String, List<Own>> chains = claim.messages().stream().map(Own::new).collect(Collectors.groupingBy(
        own -> own.message.aggregateId() == null ? "id " + own.message.id() : "of " + own.message.aggregateId(),
        LinkedHashMap::new, Collectors.toList()));
    Held held = new Held(claim, sentAt, chains.values());
    running.add(held);
    long third = options.lease.toMillis() / 3;
    Future<?> renewal = renewals.scheduleAtFixedRate(() -> renew(held), third, third, TimeUnit.MILLISECONDS);
    for (List<Own> chain : chains.values()) {
      handlers.execute(() -> {
        handleAll(held, chain);
        if (held.chains.decrementAndGet() > 0) return;
        renewal.cancel(false);
        finish(held);
      });
    }
  }

  /** Messages of one aggregate in order, up to the first that is not handled; what is left is given back with the claim. */
  private void handleAll(Held held, List<Own> chain) {
    Later later = Later.HELD;
    for (Own own : chain) {
      if (later == Later.RELEASED) end(held, own, Result.RELEASED, 0);
      else if (later == Later.LEFT || own.isLost || isStopping()) return;
      else later = handle(held, own);
    }
  }

  /** Gives back what was not handled. */
  private void finish(Held held) {
    List<String> left = held.open.values().stream().filter(own -> !own.isLost).map(own -> own.message.id()).toList();
    try {
      if (!left.isEmpty()) source.release(held.claim, left);
    } catch (Throwable error) {
      hook(() -> options.hooks.failed(error));
    }
    running.remove(held);
    for (Own own : held.open.values()) end(held, own, own.isLost ? Result.LOST : Result.RELEASED, 0);
  }

  /** What becomes of the later messages of an aggregate. */
  private enum Later { HELD, RELEASED, LEFT }

  private Later handle(Held held, Own own) {
    long startedAt = System.nanoTime();
    try {
      boolean isHeld = source.handled(held.claim, own.message.id(), own::run);
      end(held, own, isHeld ? Result.DONE : Result.LOST, startedAt);
      return isHeld ? Later.HELD : Later.LEFT;
    } catch (Throwable error) {
      if (own.isLost) end(held, own, Result.LOST, startedAt);
      // What is cancelled, but not lost, is given back with the rest of the claim.
      if (own.isLost || own.isCancelled()) return Later.LEFT;
      return fail(held, own, error instanceof ExecutionException ? error.getCause() : error, startedAt);
    }
  }

  private Later fail(Held held, Own own, Throwable error, long startedAt) {
    String text = error.getMessage() == null ? error.toString() : error.getMessage();
    // No database stores a NUL, or half of a surrogate pair.
    String reason = text.substring(0, Math.min(text.length(), MOST_REASON)).replaceAll("[\\x00\\p{Cs}]", "\uFFFD");
    boolean isDead = error instanceof DeadMessageException;
    boolean isHeld = false;
    try {
      if (isDead) isHeld = source.dead(held.claim, own.message.id(), reason);
      else source.retry(held.claim, own.message.id(), delay(error, own.message.attempt()), reason);
    } catch (Throwable failure) {
      // Its lease ends, and it comes again.
      hook(() -> options.hooks.failed(failure));
      end(held, own, Result.LOST, startedAt);
      return Later.LEFT;
    }
    end(held, own, isDead ? Result.DEAD : Result.RETRY, startedAt);
    return isHeld ? Later.HELD : Later.RELEASED;
  }

  private Duration delay(Throwable error, int attempt) {
    return error instanceof RetryMessageException retry ? retry.delay() : options.retryDelay.apply(attempt);
  }

  private void renew(Held held) {
    long sentAt = System.nanoTime();
    Set<String> kept = Set.of();
    try {
      kept = source.renew(held.claim, List.copyOf(held.open.keySet()), options.lease);
      held.renewedAt = sentAt;
    } catch (Throwable error) {
      hook(() -> options.hooks.failed(error));
      // Until the lease is over, the next renewal may succeed.
      if (System.nanoTime() - held.renewedAt < options.lease.toNanos()) return;
    }
    for (Own own : held.open.values()) {
      if (kept.contains(own.message.id())) continue;
      own.isLost = true;
      own.task.cancel(true);
    }
  }

  /** @param startedAt 0: it was not handled */
  private void end(Held held, Own own, Result result, long startedAt) {
    if (held.open.remove(own.message.id()) == null) return;
    Duration duration = Duration.ofNanos(startedAt == 0 ? 0 : System.nanoTime() - startedAt);
    hook(() -> options.hooks.ended(own.message, result, duration));
    free.release();
  }

  private static void hook(Runnable call) {
    try {
      call.run();
    } catch (RuntimeException error) {
      Thread thread = Thread.currentThread();
      thread.getUncaughtExceptionHandler().uncaughtException(thread, error);
    }
  }

  /** A claim, and its messages that have not ended. */
  private static final class Held {
    final Claim claim;
    final Map<String, Own> open = new ConcurrentHashMap<>();
    final AtomicInteger chains;
    volatile long renewedAt;

    Held(Claim claim, long renewedAt, Collection<List<Own>> chains) {
      this.claim = claim;
      this.renewedAt = renewedAt;
      this.chains = new AtomicInteger(chains.size());
      for (List<Own> chain : chains) for (Own own : chain) open.put(own.message.id(), own);
    }

    void cancel() {
      open.values().forEach(own -> own.task.cancel(true));
    }
  }

  /** A message, and its handler as a task that a cancellation interrupts. */
  private final class Own implements Handler.Context<Object> {
    final PulledMessage message;
    final FutureTask<Void> task = new FutureTask<>(this::call);
    volatile boolean isLost;
    private Object transaction;

    Own(PulledMessage message) {
      this.message = message;
    }

    private Void call() throws Exception {
      options.handler.handle(message, this);
      return null;
    }

    /** @throws java.util.concurrent.CancellationException when it has been cancelled, even if the handler returned */
    void run(Object given) throws Exception {
      transaction = given;
      task.run();
      // The interrupt was for the handler alone.
      Thread.interrupted();
      task.get();
    }

    @Override
    public Object transaction() {
      return transaction;
    }

    @Override
    public boolean isCancelled() {
      return task.isCancelled();
    }
  }
}
