package svcclient

import (
	"bytes"
	"cmp"
	"context"
	"database/sql"
	_ "embed" // The statements.
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/http"
	"net/url"
	"regexp"
	"slices"
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
	//go:embed sql/release.sql
	releaseSQL string
	//go:embed sql/renew.sql
	renewSQL string
	//go:embed sql/retry.sql
	retrySQL string
)

// SQLSource takes messages of the inbox of PostgreSQL. The handler's transaction is at the isolation level of the
// database.
type SQLSource struct {
	// DB needs a connection for each message at a time, and one more for claims and renewals.
	DB *sql.DB
	// Source has consumption: pull.
	Source string
	// MaxAttempts is the number of claims after which a message is dead; default 5.
	MaxAttempts int
}

func (s SQLSource) maxAttempts() int { return cmp.Or(s.MaxAttempts, 5) }

// Claim implements [Source].
func (s SQLSource) Claim(ctx context.Context, max int, lease time.Duration) (Claim, error) {
	if most := s.DB.Stats().MaxOpenConnections; most > 0 && most <= max {
		return Claim{}, fmt.Errorf("svcclient: the pool has at most %d connections, expected at least %d", most, max+1)
	}
	token := newID()
	messages, err := query(ctx, s.DB, func(rows *sql.Rows, m *PulledMessage) error {
		var eventType, correlationID sql.NullString
		var headers []byte
		err := rows.Scan(&m.ID, &m.AggregateID, &eventType, &m.IdempotencyKey, &correlationID, &m.Attempt,
			new(any), &headers, (*[]byte)(&m.Payload))
		m.EventType, m.CorrelationID = eventType.String, correlationID.String
		_ = json.Unmarshal(headers, &m.Headers) // What is not a text is no header.
		return err
	}, claimSQL, s.Source, max, token, lease.Milliseconds(), s.maxAttempts())
	return Claim{token, messages}, err
}

// query returns what read has read from each row of a statement.
func query[T any](
	ctx context.Context, db *sql.DB, read func(*sql.Rows, *T) error, statement string, args ...any,
) (all []T, err error) {
	rows, err := db.QueryContext(ctx, statement, args...)
	if err != nil {
		return nil, err
	}
	defer rows.Close()
	for err == nil && rows.Next() {
		var one T
		err = read(rows, &one)
		all = append(all, one)
	}
	return all, errors.Join(err, rows.Err())
}

// Renew implements [Source].
func (s SQLSource) Renew(ctx context.Context, claim Claim, lease time.Duration) ([]string, error) {
	read := func(rows *sql.Rows, id *string) error { return rows.Scan(id) }
	return query(ctx, s.DB, read, renewSQL, s.Source, claim.Token, lease.Milliseconds())
}

// Handled implements [Source].
func (s SQLSource) Handled(ctx context.Context, claim Claim, id string, handle func(tx *sql.Tx) error) (bool, error) {
	tx, err := s.DB.BeginTx(ctx, nil)
	if err != nil {
		return false, err
	}
	defer tx.Rollback() // Does nothing after the commit.
	if err := handle(tx); err != nil {
		return false, err
	}
	completed, err := tx.ExecContext(ctx, completeSQL, s.Source, claim.Token, "{"+id+"}")
	if err != nil {
		return false, err
	}
	if count, err := completed.RowsAffected(); err != nil || count != 1 {
		return false, err
	}
	err = tx.Commit()
	return err == nil, err
}

// Fail implements [Source].
func (s SQLSource) Fail(ctx context.Context, claim Claim, id string, failure Failure) (Result, error) {
	delay, most := failure.Delay.Milliseconds(), s.maxAttempts()
	if failure.IsDead {
		most = 0 // The message has been claimed more often, so the statement ends it.
	}
	read := func(rows *sql.Rows, state *string) error { return rows.Scan(new(any), state, new(any)) }
	states, err := query(ctx, s.DB, read, retrySQL, s.Source, claim.Token, id, delay, failure.Reason, most)
	return resultOf(slices.Contains(states, "dead"), len(states) == 0), err
}

// Release implements [Source].
func (s SQLSource) Release(ctx context.Context, claim Claim) error {
	_, err := s.DB.ExecContext(ctx, releaseSQL, s.Source, claim.Token)
	return err
}

// storable returns a text that every database accepts, of at most as many characters as the service stores.
func storable(reason string) string {
	runes := []rune(strings.ReplaceAll(reason, "\x00", "\ufffd"))
	return string(runes[:min(len(runes), 2000)])
}

// HTTPSource takes messages over HTTP, for every database. The service decides when a message is dead
// (inbox.pull.maxAttempts): [Dead] counts as an attempt, and so does a message that is given back.
type HTTPSource struct {
	// URL is that of the pull routes, such as http://svc:8080/pull.
	URL string
	// Source has consumption: pull.
	Source string
	// Header has the credentials of inbox.pull.auth, such as {"Authorization": {"Bearer " + token}}.
	Header http.Header
	// Wait is the longest wait of the service for a message, and so of a stop, at most a minute, and half of the
	// lease; default 5 s.
	Wait time.Duration
	// Client is [http.DefaultClient] by default.
	Client *http.Client
}

// Claim implements [Source]: it waits until a message comes, for at most Wait.
func (s HTTPSource) Claim(ctx context.Context, max int, lease time.Duration) (Claim, error) {
	wait := min(s.wait(), lease/2) // The worker counts the lease from before the wait.
	fields := map[string]any{"max": max, "leaseMs": lease.Milliseconds(), "waitMs": wait.Milliseconds()}
	got, err := s.post(ctx, "claim", fields)
	for n, message := range got.Messages {
		var text string
		err = errors.Join(err, json.Unmarshal(message.Payload, &text))
		got.Messages[n].Payload = json.RawMessage(text)
	}
	return got.Claim, err
}

// Renew implements [Source].
func (s HTTPSource) Renew(ctx context.Context, claim Claim, lease time.Duration) ([]string, error) {
	got, err := s.post(ctx, "extend", map[string]any{"claimToken": claim.Token, "leaseMs": lease.Milliseconds()})
	return got.Extended, err
}

// Handled implements [Source], without a transaction.
func (s HTTPSource) Handled(ctx context.Context, claim Claim, id string, handle func(tx *sql.Tx) error) (bool, error) {
	if err := handle(nil); err != nil {
		return false, err
	}
	got, err := s.post(ctx, "ack", map[string]any{"claimToken": claim.Token, "ids": []string{id}})
	return slices.Contains(got.Acknowledged, id), err
}

// Fail implements [Source].
func (s HTTPSource) Fail(ctx context.Context, claim Claim, id string, failure Failure) (Result, error) {
	fields := map[string]any{"claimToken": claim.Token, "ids": []string{id}, "error": failure.Reason}
	fields["delayMs"] = min(failure.Delay, 24*time.Hour).Milliseconds() // The service takes no longer one.
	got, err := s.post(ctx, "nack", fields)
	return resultOf(slices.Contains(got.Dead, id), slices.Contains(got.Lost, id)), err
}

func resultOf(isDead, isLost bool) Result {
	switch {
	case isDead:
		return ResultDead
	case isLost:
		return ResultLost
	}
	return ResultRetry
}

// Release implements [Source].
func (s HTTPSource) Release(ctx context.Context, claim Claim) error {
	_, err := s.post(ctx, "nack", map[string]any{"claimToken": claim.Token})
	return err
}

func (s HTTPSource) wait() time.Duration { return cmp.Or(s.Wait, 5*time.Second) }

// answer has the fields of all operations.
type answer struct {
	Claim
	Acknowledged, Dead, Extended, Lost []string
}

// answerTime is how long an answer may take beyond the wait.
const answerTime = 10 * time.Second

func (s HTTPSource) post(ctx context.Context, operation string, fields map[string]any) (got answer, err error) {
	ctx, cancel := context.WithTimeout(ctx, s.wait()+answerTime)
	defer cancel()
	body, _ := json.Marshal(fields) // Texts and numbers.
	address := strings.TrimSuffix(s.URL, "/") + "/" + url.PathEscape(s.Source) + "/" + operation
	request, err := http.NewRequestWithContext(ctx, http.MethodPost, address, bytes.NewReader(body))
	if err != nil {
		return got, err
	}
	maps.Copy(request.Header, s.Header)
	request.Header.Set("Content-Type", "application/json")
	response, err := cmp.Or(s.Client, http.DefaultClient).Do(request)
	if err != nil {
		return got, err
	}
	defer response.Body.Close()
	text, err := io.ReadAll(response.Body)
	err = errors.Join(err, json.Unmarshal(withTexts(text), &got))
	var field *json.UnmarshalTypeError // What is not a text is no header.
	status := response.StatusCode
	// 409: none of the messages is held any more, and the lists say so.
	if (status == http.StatusOK || status == http.StatusConflict) && (err == nil || errors.As(err, &field)) {
		return got, nil
	}
	err = errors.Join(fmt.Errorf("answered %d, expected 200 and JSON: %.200s", status, text), err)
	return got, fmt.Errorf("svcclient: %s of %s: %w", operation, s.Source, err)
}

// structure finds what structures JSON, and the name of a payload.
var structure = regexp.MustCompile(`(?s)"payload"\s*:|"(?:[^"\\]|\\.)*"|[\[\]{},]`)

// withTexts returns an answer with each payload as its text: encoding/json refuses one that is nested deeply, and other
// messages with it.
func withTexts(answer []byte) (written []byte) {
	depth, end, start := 0, 0, 0
	for _, at := range structure.FindAllIndex(answer, -1) {
		kind := answer[at[1]-1]
		switch kind {
		case '[', '{':
			depth++
		case ']', '}':
			depth--
		}
		if start > 0 && (kind == ',' && depth == 3 || kind == '}' && depth == 2) {
			text, _ := json.Marshal(string(bytes.TrimSpace(answer[start:at[0]])))
			written = append(append(written, answer[end:start]...), text...)
			end, start = at[0], 0
		} else if kind == ':' && depth == 3 {
			start = at[1]
		}
	}
	return append(written, answer[end:]...)
}
