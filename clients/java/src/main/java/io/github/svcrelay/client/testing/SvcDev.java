package io.github.svcrelay.client.testing;

import java.io.BufferedReader;
import java.io.File;
import java.io.IOException;
import java.net.InetAddress;
import java.net.ServerSocket;
import java.net.URI;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;
import java.nio.file.attribute.PosixFilePermissions;
import java.time.Duration;
import java.util.ArrayList;
import java.util.Comparator;
import java.util.List;
import java.util.concurrent.TimeUnit;
import java.util.stream.Stream;

/**
 * A real {@code svc dev}: the service with a PostgreSQL of its own, in a folder that {@link #close} deletes. The
 * variable {@code SVC_BIN} names the program; without it, {@code svc} of the path.
 */
public final class SvcDev implements AutoCloseable {
  private final Path folder;
  private final Process process;
  private final int port;
  /** Guarded by this. */
  private final List<String> lines = new ArrayList<>();
  /** Guarded by this. */
  private boolean hasEnded;

  private SvcDev(Path folder, Process process, int port) {
    this.folder = folder;
    this.process = process;
    this.port = port;
    Thread reader = new Thread(this::read, "svc-dev-output");
    reader.setDaemon(true);
    reader.start();
  }

  /**
   * Starts it, and waits until it is ready.
   *
   * @param config {@code svc.yml}: sources, destinations and routes; without {@code server.httpPort} and {@code database}
   * @throws IllegalStateException with its last lines if it ends, or is not ready within {@code timeout}
   */
  public static SvcDev start(String config, Duration timeout) throws IOException, InterruptedException {
    Path folder = Files.createTempDirectory("svc-dev-");
    if (File.separatorChar == '/') {
      // As root, PostgreSQL runs as another user, who must be able to enter.
      Files.setPosixFilePermissions(folder, PosixFilePermissions.fromString("rwx--x--x"));
    }
    Files.writeString(folder.resolve("svc.yml"), config);
    String binary = System.getenv().getOrDefault("SVC_BIN", "svc");
    List<String> command = new ArrayList<>(binary.endsWith(".js") ? List.of("node", binary) : List.of(binary));
    command.addAll(List.of("dev", "--config", "svc.yml"));
    int port = freePort();
    ProcessBuilder builder = new ProcessBuilder(command).directory(folder.toFile()).redirectErrorStream(true);
    builder.environment().put("SVC_SERVER_HTTPPORT", String.valueOf(port));
    SvcDev svc = new SvcDev(folder, builder.start(), port);
    try {
      svc.awaitReady(timeout);
      return svc;
    } catch (RuntimeException | InterruptedException error) {
      svc.close();
      throw error;
    }
  }

  /** {@code http://127.0.0.1:…}, with {@code /inbox}, {@code /pull} and {@code /health}. */
  public String url() {
    return "http://127.0.0.1:" + port;
  }

  /** {@code jdbc:postgresql://…} of its database, with user and password. */
  public String jdbcUrl() throws IOException {
    return jdbcUrl(Files.readString(folder.resolve(".svc/database-url")).strip());
  }

  /** A URL {@code postgres://user:password@host:port/database} for JDBC. */
  public static String jdbcUrl(String url) {
    URI uri = URI.create(url);
    String[] login = uri.getRawUserInfo().split(":", 2);
    return "jdbc:postgresql://" + uri.getHost() + ":" + (uri.getPort() < 0 ? 5432 : uri.getPort()) + uri.getRawPath()
        + "?user=" + login[0] + "&password=" + (login.length < 2 ? "" : login[1]);
  }

  /** What it has printed so far. */
  public synchronized List<String> lines() {
    return List.copyOf(lines);
  }

  /** Stops it as Ctrl-C does, and deletes its folder. After 30 s, or at an interrupt, it ends the process by force. */
  @Override
  public void close() throws IOException {
    process.destroy();
    try {
      if (!process.waitFor(30, TimeUnit.SECONDS)) process.destroyForcibly().waitFor();
    } catch (InterruptedException error) {
      process.destroyForcibly();
      Thread.currentThread().interrupt();
    }
    try (Stream<Path> files = Files.walk(folder)) {
      for (Path file : files.sorted(Comparator.reverseOrder()).toList()) Files.deleteIfExists(file);
    }
  }

  private synchronized void awaitReady(Duration timeout) throws InterruptedException {
    long deadline = System.nanoTime() + timeout.toNanos();
    while (lines.stream().noneMatch(line -> line.startsWith("svc is running."))) {
      long left = deadline - System.nanoTime();
      if (hasEnded || left <= 0)
        throw new IllegalStateException("svc dev " + (hasEnded ? "ended" : "is not ready within " + timeout)
            + ", expected \"svc is running.\"; its last lines:\n"
            + String.join("\n", lines.subList(Math.max(0, lines.size() - 20), lines.size())));
      TimeUnit.NANOSECONDS.timedWait(this, left);
    }
  }

  private void read() {
    try (BufferedReader output = process.inputReader(StandardCharsets.UTF_8)) {
      for (String line = output.readLine(); line != null; line = output.readLine()) add(line, false);
    } catch (IOException error) {
      add("its output cannot be read: " + error.getMessage(), false);
    }
    add("", true);
  }

  private synchronized void add(String line, boolean isLast) {
    lines.add(line);
    hasEnded = isLast;
    notifyAll();
  }

  private static int freePort() throws IOException {
    try (ServerSocket socket = new ServerSocket(0, 1, InetAddress.getLoopbackAddress())) {
      return socket.getLocalPort();
    }
  }
}
