package io.github.svcrelay.client;

/** The active span of OpenTelemetry, if its API is on the class path. */
final class ActiveSpan {
  private static final boolean IS_LOADED =
      ActiveSpan.class.getResource("/io/opentelemetry/api/trace/Span.class") != null;

  private ActiveSpan() {}

  /** @return its header, or null */
  static String traceparent() {
    try {
      Object context = IS_LOADED ? call("Span", "getSpanContext", call("Span", "current", null)) : null;
      if (context == null || !(boolean) call("SpanContext", "isValid", context)) return null;
      Object trace = call("SpanContext", "getTraceId", context);
      Object span = call("SpanContext", "getSpanId", context);
      return "00-" + trace + "-" + span + "-" + call("TraceFlags", "asHex", call("SpanContext", "getTraceFlags", context));
    } catch (ReflectiveOperationException | LinkageError error) {
      // Tracing never prevents a message.
      return null;
    }
  }

  private static Object call(String type, String method, Object on) throws ReflectiveOperationException {
    return Class.forName("io.opentelemetry.api.trace." + type).getMethod(method).invoke(on);
  }
}
