package io.github.svcrelay.client;

/** The database of a {@link Transaction}. */
public enum Dialect { POSTGRESQL, SQLSERVER }
