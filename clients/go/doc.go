// Package svcclient is the client of svc for applications that share its database.
//
//   - [Enqueue] writes a message into the outbox, in the caller's transaction.
//   - [Worker] takes messages out of the inbox, over SQL ([SQLSource]) or HTTP ([HTTPSource]).
//   - [Once] does the work of a message once.
//
// The package depends on the standard library only. It works with every driver of database/sql for PostgreSQL and SQL
// Server, and with pgx through [FromPgx]. The package svctest helps in tests.
package svcclient
