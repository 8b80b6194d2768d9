package io.github.svcrelay.client;

import java.util.List;

/**
 * Messages that a worker holds.
 *
 * @param messages oldest first
 */
public record Claim(String token, List<PulledMessage> messages) {}
