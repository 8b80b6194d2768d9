package svcclient

import (
	"cmp"
	"context"
	"database/sql"
	_ "embed" // The statements.
	"encoding/json"
	"fmt"
	"strings"
	"time"
)

// The statements of a pull client on PostgreSQL: the files of docs/examples/pull, byte for byte. They read and write
// the table inbox that the connection finds.
var (
	//go:embed sql/claim.sql
	claimSQL string
	//go:embed sql/complete.sql
	completeSQL string
	//go:embed sql/dead.sql
	deadSQL string
	//go:embed sql/release.sql
	releaseSQL string
	//go:embed sql/renew.sql
	renewSQL string
	//go:embed sql/retry.sql
	retrySQL string
)

// SQLSource takes messages of the inbox of PostgreSQL. The source has consumption: pull. Its messages are dead after
// maxAttempts claims, or 5 if that is zero. The handler's transaction is at the isolation level of the database. If the
// pool is limited, it needs a connection for each message at a time, and one more for claims and renewals.
func SQLSource(db *sql.DB, source string, maxAttempts int) Source {
	return &sqlSource{db, source, cmp.Or(maxAttempts, 5)}
}

type sqlSource struct {
	*sql.DB
	source      string
	maxAttempts int
}

func (s *sqlSource) Claim(ctx context.Context, max int, lease time.Duration) (Claim, error) {
	if most := s.Stats().MaxOpenConnections; most > 0 && most <= max {
		return Claim{}, fmt.Errorf("svcclient: the pool has at most %d connections, expected at least %d", most, max+1)
	}
	// A stop waits for the answer: messages of a claim that is cut off would stay claimed for their lease.
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), lease)
	defer cancel()
	claim := Claim{Token: newID()}
	rows, err := s.QueryContext(ctx, claimSQL, s.source, max, claim.Token, lease.Milliseconds(), s.maxAttempts)
	if err != nil {
		return Claim{}, err
	}
	defer rows.Close()
	for rows.Next() {
		var m PulledMessage
		var eventType, correlationID sql.NullString
		var createdAt any
		var headers, payload []byte
		if err := rows.Scan(&m.ID, &m.AggregateID, &eventType, &m.IdempotencyKey, &correlationID, &m.Attempt, &createdAt,
			&headers, &payload); err != nil {
			return Claim{}, err
		}
		m.EventType, m.CorrelationID, m.Payload = eventType.String, correlationID.String, payload
		_ = json.Unmarshal(headers, &m.Headers) // What is not a text is no header.
		claim.Messages = append(claim.Messages, m)
	}
	return claim, rows.Err()
}

func (s *sqlSource) Renew(ctx context.Context, claim Claim, _ []string, lease time.Duration) ([]string, error) {
	rows, err := s.QueryContext(ctx, renewSQL, s.source, claim.Token, lease.Milliseconds())
	if err != nil {
		return nil, err
	}
	defer rows.Close()
	var ids []string
	for rows.Next() {
		var id string
		if err := rows.Scan(&id); err != nil {
			return nil, err
		}
		ids = append(ids, id)
	}
	return ids, rows.Err()
}

func (s *sqlSource) Handled(ctx context.Context, claim Claim, id string, handle func(tx *sql.Tx) error) (bool, error) {
	tx, err := s.BeginTx(ctx, nil)
	if err != nil {
		return false, err
	}
	defer tx.Rollback() // Does nothing after the commit.
	if err := handle(tx); err != nil {
		return false, err
	}
	completed, err := tx.ExecContext(ctx, completeSQL, s.source, claim.Token, "{"+id+"}")
	if err != nil {
		return false, err
	}
	if count, err := completed.RowsAffected(); err != nil || count != 1 {
		return false, err
	}
	err = tx.Commit()
	return err == nil, err
}

func (s *sqlSource) Retry(ctx context.Context, claim Claim, id string, delay time.Duration, reason string) error {
	_, err := s.ExecContext(ctx, retrySQL, s.source, claim.Token, id, delay.Milliseconds(), storable(reason), s.maxAttempts)
	return err
}

func (s *sqlSource) Dead(ctx context.Context, claim Claim, id, reason string) (bool, error) {
	_, err := s.ExecContext(ctx, deadSQL, s.source, claim.Token, id, storable(reason))
	return err == nil, err
}

func (s *sqlSource) Release(ctx context.Context, claim Claim, _ []string) error {
	_, err := s.ExecContext(ctx, releaseSQL, s.source, claim.Token)
	return err
}

// storable returns a text that PostgreSQL accepts, of at most as many characters as the service stores.
func storable(reason string) string {
	runes := []rune(strings.ReplaceAll(reason, "\x00", "\ufffd"))
	return string(runes[:min(len(runes), 2000)])
}
