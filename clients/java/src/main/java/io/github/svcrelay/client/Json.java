package io.github.svcrelay.client;

import java.util.ArrayDeque;
import java.util.ArrayList;
import java.util.Deque;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.regex.Matcher;
import java.util.regex.Pattern;
import java.util.stream.Collectors;

/** As much of JSON (RFC 8259) as the client needs. */
final class Json {
  private static final Pattern NUMBER = Pattern.compile("-?+(?:0|[1-9]\\d*+)(?:\\.\\d++)?+(?:[eE][+-]?+\\d++)?+");
  private static final Pattern WORD = Pattern.compile("true|false|null");
  private static final Pattern ESCAPE = Pattern.compile("[\"\\\\/bfnrt]|u[0-9a-fA-F]{4}");

  private final String text;
  private int at;

  private Json(String text) {
    this.text = text;
  }

  /** @throws IllegalArgumentException for a value that has no JSON */
  static String write(Object value) {
    if (value instanceof String string) return quoted(string);
    if (value instanceof List<?> list) return list.stream().map(Json::write).collect(Collectors.joining(",", "[", "]"));
    if (value instanceof Map<?, ?> map)
      return map.entrySet().stream()
          .map(member -> quoted(String.valueOf(member.getKey())) + ":" + write(member.getValue()))
          .collect(Collectors.joining(",", "{", "}"));
    if (value == null || value instanceof Boolean) return String.valueOf(value);
    if (value instanceof Number && NUMBER.matcher(value.toString()).matches()) return value.toString();
    throw new IllegalArgumentException("found " + value + ", a " + value.getClass().getName()
        + "; expected a Map, List, String, finite Number, Boolean or null, or the text of your JSON library in json");
  }

  private static String quoted(String string) {
    StringBuilder out = new StringBuilder("\"");
    string.codePoints().forEach(c -> {
      if (c < ' ' || Character.getType(c) == Character.SURROGATE) out.append(String.format("\\u%04x", c));
      else out.append(c == '"' || c == '\\' ? "\\" : "").appendCodePoint(c);
    });
    return out.append('"').toString();
  }

  /**
   * The value of a text: maps, lists, texts, doubles and booleans.
   *
   * @param rawLevel the level, from 1, at which members called {@code payload} stay JSON text
   * @throws IllegalArgumentException for a text that is no JSON
   */
  static Object parse(String text, int rawLevel) {
    Json json = new Json(text);
    Object value = json.value(rawLevel);
    json.next();
    if (json.at < text.length()) throw json.unexpected("the end");
    return value;
  }

  /** With a stack of its own: a payload may be nested deeper than a thread can follow. */
  @SuppressWarnings("unchecked")
  private Object value(int rawLevel) {
    Deque<Object> open = new ArrayDeque<>();
    Deque<String> names = new ArrayDeque<>();
    int rawFrom = 0;
    while (true) {
      Object value;
      if (take('{')) value = new LinkedHashMap<String, Object>();
      else if (take('[')) value = new ArrayList<>();
      else value = scalar();
      boolean isOpen = value instanceof Map ? !take('}') : value instanceof List && !take(']');
      if (isOpen) open.push(value);
      if (isOpen && value instanceof Map) names.push(name());
      while (!isOpen) {
        if (open.isEmpty()) return value;
        boolean isRaw = open.size() == rawLevel && "payload".equals(names.peek());
        if (open.peek() instanceof Map<?, ?> map)
          ((Map<String, Object>) map).put(names.pop(), isRaw ? text.substring(rawFrom, at).strip() : value);
        else ((List<Object>) open.peek()).add(value);
        isOpen = take(',');
        if (isOpen && open.peek() instanceof Map) names.push(name());
        if (!isOpen) {
          value = open.pop();
          expect(value instanceof Map ? '}' : ']');
        }
      }
      if (open.size() == rawLevel) rawFrom = at;
    }
  }

  private String name() {
    next();
    String name = string();
    expect(':');
    return name;
  }

  private Object scalar() {
    if (next() == '"') return string();
    String number = found(NUMBER);
    if (number != null) return Double.valueOf(number);
    String word = found(WORD);
    if (word == null) throw unexpected("a value");
    return word.equals("null") ? null : Boolean.valueOf(word);
  }

  private String string() {
    expect('"');
    StringBuilder string = new StringBuilder();
    for (; at < text.length() && text.charAt(at) >= ' '; at++) {
      char c = text.charAt(at);
      if (c == '"') {
        at++;
        return string.toString();
      }
      if (c == '\\') {
        at++;
        String escape = found(ESCAPE);
        if (escape == null) throw unexpected("an escape such as \\n");
        c = escape.length() > 1 ? (char) Integer.parseInt(escape.substring(1), 16)
            : "\"\\/\b\f\n\r\t".charAt("\"\\/bfnrt".indexOf(escape));
        at--;
      }
      string.append(c);
    }
    throw unexpected("the end of a text");
  }

  private String found(Pattern pattern) {
    Matcher matcher = pattern.matcher(text).region(at, text.length());
    if (!matcher.lookingAt()) return null;
    at = matcher.end();
    return matcher.group();
  }

  /** @return the next character that is no blank; 0 at the end */
  private char next() {
    while (at < text.length() && " \t\n\r".indexOf(text.charAt(at)) >= 0) at++;
    return at < text.length() ? text.charAt(at) : 0;
  }

  private boolean take(char wanted) {
    if (next() != wanted) return false;
    at++;
    return true;
  }

  private void expect(char wanted) {
    if (!take(wanted)) throw unexpected("'" + wanted + "'");
  }

  private IllegalArgumentException unexpected(String expected) {
    String found = at < text.length() ? String.format("U+%04X", text.codePointAt(at)) : "the end";
    return new IllegalArgumentException("found " + found + " at character " + at + ", expected " + expected);
  }
}
