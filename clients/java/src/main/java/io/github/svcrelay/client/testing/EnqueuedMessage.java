package io.github.svcrelay.client.testing;

/**
 * A row of the outbox.
 *
 * @param payload JSON text
 * @param headers JSON text
 */
public record EnqueuedMessage(
    String id, String topic, String key, String payload, String headers, String destination) {}
