// Package svctest helps to test applications that use svcclient.
package svctest

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"reflect"
	"strings"
	"testing"
	"time"

	svcclient "github.com/svc-relay/svc/clients/go"
)

// Rows are those of database/sql or pgx.
type Rows interface {
	Next() bool
	Scan(targets ...any) error
	Err() error
}

// Queries are *sql.Tx, *sql.Conn or *sql.DB. For pgx see [FromPgx].
type Queries[R Rows] interface {
	QueryContext(ctx context.Context, statement string, args ...any) (R, error)
}

// FromPgx returns a pgx.Tx, *pgx.Conn or *pgxpool.Pool for [AssertEnqueued].
func FromPgx[R Rows](tx interface {
	Query(ctx context.Context, statement string, args ...any) (R, error)
}) Queries[R] {
	return query[R](tx.Query)
}

type query[R Rows] func(ctx context.Context, statement string, args ...any) (R, error)

func (q query[R]) QueryContext(ctx context.Context, statement string, args ...any) (R, error) {
	return q(ctx, statement, args...)
}

// AssertEnqueued returns the first message of the outbox that has all that want sets, as the transaction sees it. It
// ends the test if there is none. Payloads are compared as JSON, and headers that want does not name are ignored. Give
// an outbox with other names than the service's own; with cells, the schema of a cell.
func AssertEnqueued[R Rows](
	t testing.TB, ctx context.Context, tx Queries[R], want svcclient.Message, outbox ...svcclient.Outbox,
) svcclient.Message {
	t.Helper()
	wanted, err := json.Marshal(want.Payload)
	if want.JSON != nil {
		wanted = want.JSON
	}
	if err != nil {
		t.Fatalf("the payload to look for cannot be written as JSON: %v", err)
	}
	var o svcclient.Outbox
	if len(outbox) > 0 {
		o = outbox[0]
	}
	found, err := read(ctx, tx, want, o)
	if err != nil {
		t.Fatalf("the outbox cannot be read: %v", err)
	}
	for _, got := range found {
		if matches(got, want, wanted) {
			return got
		}
	}
	t.Fatalf("the outbox has no such message, expected\n  %s\nfound %d%s", shown(want, wanted), len(found), list(found))
	return svcclient.Message{}
}

func read[R Rows](
	ctx context.Context, tx Queries[R], want svcclient.Message, o svcclient.Outbox,
) ([]svcclient.Message, error) {
	var id, topic, key, payload, headers, destination *string
	var deliverAt, expiresAt *time.Time
	c := o.Columns
	columns := []string{
		"CAST(" + name(c.ID, "id") + " AS varchar(36))", name(c.Topic, "topic"), name(c.Key, "key"),
		name(c.Payload, "payload"), name(c.Headers, "headers"),
	}
	targets := []any{&id, &topic, &key, &payload, &headers}
	// An own table may lack these.
	if want.Destination != "" {
		columns, targets = append(columns, name(c.Destination, "destination")), append(targets, &destination)
	}
	if !want.DeliverAt.IsZero() {
		columns, targets = append(columns, name(c.DeliverAt, "scheduled_at")), append(targets, &deliverAt)
	}
	if !want.ExpiresAt.IsZero() {
		columns, targets = append(columns, name(c.ExpiresAt, "expires_at")), append(targets, &expiresAt)
	}
	table := name(o.Table, "outbox")
	if o.Schema != "" {
		table = name(o.Schema, "") + "." + table
	}
	rows, err := tx.QueryContext(ctx, "SELECT "+strings.Join(columns, ", ")+" FROM "+table)
	if err != nil {
		return nil, err
	}
	var found []svcclient.Message
	for rows.Next() {
		if scanned := rows.Scan(targets...); scanned != nil {
			err = scanned // The rest is read, which closes the rows.
			continue
		}
		got := svcclient.Message{
			ID:          strings.ToLower(text(id)),
			Topic:       text(topic),
			Key:         key,
			JSON:        json.RawMessage(text(payload)),
			Destination: text(destination),
		}
		_ = json.Unmarshal([]byte(text(headers)), &got.Headers)
		if deliverAt != nil {
			got.DeliverAt = *deliverAt
		}
		if expiresAt != nil {
			got.ExpiresAt = *expiresAt
		}
		found = append(found, got)
	}
	if err == nil {
		err = rows.Err()
	}
	return found, err
}

func name(own, usual string) string {
	if own == "" {
		own = usual
	}
	return `"` + strings.ReplaceAll(own, `"`, `""`) + `"`
}

func text(value *string) string {
	if value == nil {
		return ""
	}
	return *value
}

func matches(got, want svcclient.Message, payload []byte) bool {
	for header, value := range want.Headers {
		if has, ok := got.Headers[header]; !ok || has != value {
			return false
		}
	}
	return (want.ID == "" || strings.EqualFold(want.ID, got.ID)) &&
		(want.Topic == "" || want.Topic == got.Topic) &&
		(want.Key == nil || got.Key != nil && *want.Key == *got.Key) &&
		(want.Destination == "" || want.Destination == got.Destination) &&
		isAt(got.DeliverAt, want.DeliverAt) && isAt(got.ExpiresAt, want.ExpiresAt) &&
		(want.Payload == nil && want.JSON == nil || isJSON(got.JSON, payload))
}

func isAt(got, want time.Time) bool {
	return want.IsZero() || got.Truncate(time.Millisecond).Equal(want.Truncate(time.Millisecond))
}

func isJSON(got, want []byte) bool {
	if bytes.Equal(got, want) {
		return true
	}
	a, errA := parsed(got)
	b, errB := parsed(want)
	return errA == nil && errB == nil && reflect.DeepEqual(a, b)
}

func parsed(text []byte) (value any, err error) {
	decoder := json.NewDecoder(bytes.NewReader(text))
	decoder.UseNumber()
	err = decoder.Decode(&value)
	return value, err
}

func shown(m svcclient.Message, payload []byte) string {
	key := "no key"
	if m.Key != nil {
		key = fmt.Sprintf("key %q", *m.Key)
	}
	return fmt.Sprintf("topic %q, %s, payload %.200s, headers %v, id %q, destination %q",
		m.Topic, key, payload, m.Headers, m.ID, m.Destination)
}

const mostShown = 10

func list(found []svcclient.Message) string {
	text := ""
	for n, m := range found {
		if n == mostShown {
			return text + "\n  and others"
		}
		text += "\n  " + shown(m, m.JSON)
	}
	return text
}
