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
import java.util.concurrent.CopyOnWriteArrayList;
import java.util.concurrent.CountDownLatch;
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
  private final List<String> lines = new CopyOnWriteArrayList<>();
  /** Above 0 until it is ready, or has ended. */
  private final CountDownLatch starting = new CountDownLatch(1);

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
   * @param config the text of a {@code svc.yml}; the port of HTTP and the database are always its own
   * @throws IOException if {@code SVC_BIN} names no program
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
    SvcDev svc;
    try {
      svc = new SvcDev(folder, builder.start(), port);
    } catch (IOException error) {
      delete(folder);
      throw new IOException("svc does not start, expected its program in the variable SVC_BIN: " + error.getMessage(), error);
    }
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
  public List<String> lines() {
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
    delete(folder);
  }

  private static void delete(Path folder) throws IOException {
    try (Stream<Path> files = Files.walk(folder)) {
      for (Path file : files.sorted(Comparator.reverseOrder()).toList()) Files.deleteIfExists(file);
    }
  }

  private void awaitReady(Duration timeout) throws InterruptedException {
    boolean isInTime = starting.await(timeout.toMillis(), TimeUnit.MILLISECONDS);
    List<String> all = lines();
    if (all.stream().noneMatch(SvcDev::saysReady))
      throw new IllegalStateException("svc dev " + (isInTime ? "ended" : "is not ready within " + timeout)
          + ", expected \"svc is running.\"; its last lines:\n"
          + String.join("\n", all.subList(Math.max(0, all.size() - 20), all.size())));
  }

  private static boolean saysReady(String line) {
    return line.startsWith("svc is running.");
  }

  private void read() {
    try (BufferedReader output = process.inputReader(StandardCharsets.UTF_8)) {
      for (String line = output.readLine(); line != null; line = output.readLine()) {
        lines.add(line);
        if (saysReady(line)) starting.countDown();
      }
    } catch (IOException error) {
      lines.add("its output cannot be read: " + error.getMessage());
    }
    starting.countDown();
  }

  private static int freePort() throws IOException {
    try (ServerSocket socket = new ServerSocket(0, 1, InetAddress.getLoopbackAddress())) {
      return socket.getLocalPort();
    }
  }
}
