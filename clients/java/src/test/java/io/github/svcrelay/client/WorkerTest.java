package io.github.svcrelay.client;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import io.github.svcrelay.client.Worker.Result;
import java.time.Duration;
import java.util.ArrayList;
import java.util.Collection;
import java.util.HashSet;
import java.util.List;
import java.util.Map;
import java.util.Set;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.LinkedBlockingQueue;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.atomic.AtomicInteger;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.Timeout;

@Timeout(20)
class WorkerTest {
  private static final Duration MOMENT = Duration.ofMillis(10);

  /** Messages in memory, and what the worker did with them. */
  private static final class Memory implements PullSource<String> {
    final LinkedBlockingQueue<List<PulledMessage>> claims = new LinkedBlockingQueue<>();
    final LinkedBlockingQueue<String> done = new LinkedBlockingQueue<>();
    volatile boolean failsToClaim;
    volatile boolean failsToRenew;
    volatile boolean hangsToRenew;
    volatile boolean losesAll;
    volatile boolean hasNoDead;
    volatile Result ofRetry = Result.RETRY;

    void add(String aggregate, String... ids) {
      List<PulledMessage> messages = new ArrayList<>();
      for (String id : ids) messages.add(new PulledMessage(id, aggregate, null, id, null, 1, Map.of(), "{}"));
      claims.add(messages);
    }

    @Override
    public Claim claim(int max, Duration lease) {
      if (failsToClaim) throw new IllegalStateException("no claim");
      List<PulledMessage> next = claims.peek();
      if (next == null || next.size() > max) return new Claim("token", List.of());
      return new Claim("token", claims.remove());
    }

    @Override
    public Set<String> renew(Claim claim, Collection<String> ids, Duration lease) throws InterruptedException {
      if (hangsToRenew) Thread.sleep(10_000);
      if (failsToRenew) throw new IllegalStateException("no renewal");
      return losesAll ? Set.of() : new HashSet<>(ids);
    }

    @Override
    public boolean handled(Claim claim, String id, Work<String> work) throws Exception {
      work.run("tx");
      done.add("handled " + id);
      return true;
    }

    @Override
    public Result retry(Claim claim, String id, Duration delay, String reason) {
      done.add("retry " + id + " " + delay.toMillis() + " " + reason);
      return ofRetry;
    }

    @Override
    public boolean dead(Claim claim, String id, String reason) {
      if (hasNoDead) return false;
      done.add("dead " + id + " " + reason);
      return true;
    }

    @Override
    public void release(Claim claim, Collection<String> ids) {
      done.add("release " + ids);
    }
  }

  private static final class Recorded implements Worker.Hooks {
    final LinkedBlockingQueue<String> ends = new LinkedBlockingQueue<>();
    final AtomicInteger failures = new AtomicInteger();

    @Override
    public void ended(PulledMessage message, Result result, Duration duration) {
      ends.add(message.id() + " " + result);
      throw new IllegalStateException("a hook that throws");
    }

    @Override
    public void failed(Throwable error) {
      failures.incrementAndGet();
    }
  }

  private final Memory memory = new Memory();
  private final Recorded hooks = new Recorded();

  private final Worker.Options options = new Worker.Options().poll(MOMENT).concurrency(3).hooks(hooks);

  private Worker<String> start(Handler<String> handler) {
    return start(handler, options);
  }

  private Worker<String> start(Handler<String> handler, Worker.Options changed) {
    Thread.setDefaultUncaughtExceptionHandler((thread, error) -> {});
    return new Worker<>(memory, handler, changed);
  }

  private static String next(LinkedBlockingQueue<String> queue) throws InterruptedException {
    return queue.poll(5, TimeUnit.SECONDS);
  }

  @Test
  void retriesEndsAndGivesBack() throws Exception {
    memory.add("a", "a1", "a2", "a3");
    Handler<String> handler = (message, tx) -> {
      assertEquals("tx", tx);
      if (message.id().equals("a1")) throw new DeadMessageException("never");
      if (message.id().equals("a2")) throw new RetryMessageException(Duration.ofSeconds(7), "later");
      if (message.id().equals("b1")) throw new AssertionError();
      if (message.id().equals("c1")) throw new InterruptedException("not by the worker");
    };
    try (Worker<String> worker = start(handler)) {
      assertEquals("dead a1 never", next(memory.done));
      assertEquals("retry a2 7000 later", next(memory.done));
      for (String end : List.of("a1 DEAD", "a2 RETRY", "a3 RELEASED")) assertEquals(end, next(hooks.ends));
      memory.add(null, "b1");
      assertEquals("retry b1 1000 java.lang.AssertionError", next(memory.done));
      memory.add(null, "c1");
      assertEquals("retry c1 1000 not by the worker", next(memory.done));
    }
    assertEquals(0, hooks.failures.get());
  }

  @Test
  void saysHowAFailedAttemptEnded() throws Exception {
    memory.hasNoDead = true;
    memory.ofRetry = Result.DEAD;
    memory.add("a", "a1", "a2");
    try (Worker<String> worker = start((message, tx) -> {
      throw new DeadMessageException("never");
    })) {
      assertEquals("retry a1 1000 never", next(memory.done));
      for (String end : List.of("a1 DEAD", "a2 RELEASED")) assertEquals(end, next(hooks.ends));
      memory.ofRetry = Result.LOST;
      memory.add("b", "b1", "b2");
      for (String done : List.of("retry b1 1000 never", "release [b2]")) assertEquals(done, next(memory.done));
      for (String end : List.of("b1 LOST", "b2 RELEASED")) assertEquals(end, next(hooks.ends));
    }
  }

  @Test
  void acknowledgesNothingOfALostLease() throws Exception {
    memory.losesAll = true;
    memory.add("a", "a1", "a2");
    CountDownLatch interrupted = new CountDownLatch(1);
    Handler<String> swallows = (message, tx) -> {
      try {
        Thread.sleep(10_000);
      } catch (InterruptedException error) {
        interrupted.countDown();
      }
    };
    try (Worker<String> worker = start(swallows, options.lease(Duration.ofMillis(60)))) {
      assertTrue(interrupted.await(5, TimeUnit.SECONDS));
      assertEquals("a1 LOST", next(hooks.ends));
      assertEquals("a2 LOST", next(hooks.ends));
    }
    assertTrue(memory.done.isEmpty());
  }

  @Test
  void losesALeaseThatItCannotRenew() throws Exception {
    memory.failsToRenew = true;
    memory.add(null, "m1");
    Handler<String> slow = (message, tx) -> Thread.sleep(10_000);
    try (Worker<String> worker = start(slow, options.lease(Duration.ofMillis(900)))) {
      assertEquals("m1 LOST", next(hooks.ends));
      assertTrue(hooks.failures.get() >= 2, "it tried again until the end of the lease");
    }
  }

  @Test
  void losesALeaseWhoseRenewalHangs() throws Exception {
    memory.hangsToRenew = true;
    memory.add(null, "m1");
    Handler<String> slow = (message, tx) -> Thread.sleep(10_000);
    try (Worker<String> worker = start(slow, options.lease(Duration.ofMillis(900)))) {
      assertEquals("m1 LOST", next(hooks.ends));
      assertTrue(hooks.failures.get() >= 2, "it tried again until the end of the lease");
    }
  }

  @Test
  void leavesNoInterruptForTheNextMessage() throws Exception {
    memory.add("a", "a1", "a2");
    List<Boolean> interrupts = new ArrayList<>();
    Handler<String> handler = (message, tx) -> {
      interrupts.add(Thread.currentThread().isInterrupted());
      Thread.currentThread().interrupt();
    };
    try (Worker<String> worker = start(handler)) {
      assertEquals("handled a1", next(memory.done));
      assertEquals("handled a2", next(memory.done));
    }
    assertEquals(List.of(false, false), interrupts);
  }

  @Test
  void claimsAgainAfterAFailure() throws Exception {
    memory.failsToClaim = true;
    try (Worker<String> worker = start((message, tx) -> {})) {
      while (hooks.failures.get() == 0) Thread.sleep(5);
      memory.add("a", "a1");
      memory.failsToClaim = false;
      assertEquals("handled a1", next(memory.done));
    }
  }

  @Test
  void cancelsAndGivesBackAtAStop() throws Exception {
    memory.add("a", "a1", "a2");
    CountDownLatch started = new CountDownLatch(1);
    Worker<String> worker = start((message, tx) -> {
      started.countDown();
      Thread.sleep(10_000);
    }, options.stopTimeout(MOMENT));
    assertTrue(started.await(5, TimeUnit.SECONDS));
    worker.close();
    assertTrue(Set.of("release [a1, a2]", "release [a2, a1]").contains(next(memory.done)));
    assertEquals(2, hooks.ends.size());
    worker.close();
    memory.add("b", "b1");
    Thread.sleep(50);
    assertTrue(memory.done.isEmpty());
  }

  @Test
  void stopsWithinItsOwnHandler() throws Exception {
    memory.add("a", "a1");
    CompletableFuture<Worker<String>> self = new CompletableFuture<>();
    self.complete(start((message, tx) -> {
      self.get().close();
      assertTrue(Thread.currentThread().isInterrupted());
    }, options.stopTimeout(MOMENT)));
    assertEquals("release [a1]", next(memory.done));
    assertEquals("a1 RELEASED", next(hooks.ends));
    self.get().close();
  }

  @Test
  void refusesBadOptions() {
    assertThrows(IllegalArgumentException.class, () -> options.concurrency(0));
    assertThrows(IllegalArgumentException.class, () -> options.lease(Duration.ZERO));
    assertFalse(Thread.currentThread().isInterrupted());
  }
}
