package main

import (
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
	svcclient "github.com/svc-relay/svc/clients/go"
)

type step struct {
	Begin, Commit, Rollback bool
	Savepoint, RollbackTo   string
	Enqueue                 map[string]json.RawMessage
	EnqueueMany             []map[string]json.RawMessage
	Error, Returns, Span    string
}

type sqlTransaction struct{ tx *sql.Tx }

func (e *environment) beginSQL(ctx context.Context) (transaction, error) {
	tx, err := e.db.BeginTx(ctx, nil)
	return sqlTransaction{tx}, err
}

func (t sqlTransaction) client() svcclient.Transaction { return t.tx }

func (t sqlTransaction) execute(ctx context.Context, statement string) error {
	_, err := t.tx.ExecContext(ctx, statement)
	return err
}

func (t sqlTransaction) end(_ context.Context, commits bool) error {
	if commits {
		return t.tx.Commit()
	}
	return t.tx.Rollback()
}

type pgxTransaction struct{ tx pgx.Tx }

func (e *environment) beginPgx(ctx context.Context) (transaction, error) {
	tx, err := e.pool.Begin(ctx)
	return pgxTransaction{tx}, err
}

func (t pgxTransaction) client() svcclient.Transaction { return svcclient.FromPgx(t.tx) }

func (t pgxTransaction) execute(ctx context.Context, statement string) error {
	_, err := t.tx.Exec(ctx, statement)
	return err
}

func (t pgxTransaction) end(ctx context.Context, commits bool) error {
	if commits {
		return t.tx.Commit(ctx)
	}
	return t.tx.Rollback(ctx)
}

func (e *environment) enqueueCase(ctx context.Context, begin begin, c *contractCase) error {
	for _, statement := range c.Setup {
		// The same case may have run with another driver.
		if schema, creates := strings.CutPrefix(statement, "CREATE SCHEMA "); creates {
			if err := e.execute(ctx, "DROP SCHEMA IF EXISTS "+schema+" CASCADE"); err != nil {
				return err
			}
		}
	}
	if err := e.execute(ctx, append([]string{"TRUNCATE outbox"}, c.Setup...)...); err != nil {
		return err
	}
	if err := runSteps(ctx, begin, c.Options, c.Steps); err != nil {
		return err
	}
	if c.Rows != nil {
		if err := e.compareRows(ctx, c); err != nil {
			return err
		}
	}
	for cell, want := range c.RowsByCell {
		got, err := texts(e.db.QueryContext(ctx, "SELECT key FROM "+cell+".outbox ORDER BY sequence"))
		if err == nil {
			err = different("the keys of "+cell, got, want)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

func runSteps(ctx context.Context, begin begin, outbox svcclient.Outbox, steps []step) (err error) {
	var tx transaction
	defer func() {
		if tx != nil {
			_ = tx.end(ctx, false)
		}
	}()
	for n, s := range steps {
		switch {
		case s.Begin:
			tx, err = begin(ctx)
		case s.Commit || s.Rollback:
			err = tx.end(ctx, s.Commit)
			tx = nil
		case s.Savepoint != "":
			err = tx.execute(ctx, "SAVEPOINT "+s.Savepoint)
		case s.RollbackTo != "":
			err = tx.execute(ctx, "ROLLBACK TO "+s.RollbackTo)
		default:
			err = enqueue(context.WithValue(ctx, spanKey{}, s.Span), outbox, tx.client(), s)
		}
		if err != nil {
			return fmt.Errorf("step %d: %w", n, err)
		}
	}
	return nil
}

func enqueue(ctx context.Context, outbox svcclient.Outbox, tx svcclient.Transaction, s step) error {
	given := s.EnqueueMany
	if s.Enqueue != nil {
		given = []map[string]json.RawMessage{s.Enqueue}
	}
	messages := []svcclient.Message{}
	for _, fields := range given {
		message, err := messageOf(fields)
		if err != nil {
			return err
		}
		messages = append(messages, message)
	}
	var ids []string
	var err error
	if s.Enqueue != nil {
		var id string
		id, err = outbox.Enqueue(ctx, tx, messages[0])
		ids = []string{id}
	} else {
		ids, err = outbox.EnqueueMany(ctx, tx, messages)
	}
	if s.Error != "" {
		var refused *svcclient.EnqueueError
		if !errors.As(err, &refused) || refused.Code != s.Error {
			return fmt.Errorf("the error is %v, expected an EnqueueError with the code %s", err, s.Error)
		}
		return nil
	}
	if err != nil {
		return err
	}
	return compareIDs(ids, s.Returns)
}

var (
	isUUID = regexp.MustCompile(`^[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}$`)
	isV7   = regexp.MustCompile(`^.{14}7.{4}[89ab]`)
)

func compareIDs(ids []string, returns string) error {
	for _, id := range ids {
		if !isUUID.MatchString(id) || returns == "increasing-v7" && !isV7.MatchString(id) {
			return fmt.Errorf("the id is %s, expected a UUID (%s)", id, returns)
		}
	}
	if returns == "increasing-v7" {
		if !slices.IsSorted(ids) || len(slices.Compact(slices.Clone(ids))) != len(ids) {
			return fmt.Errorf("the ids are %v, expected increasing ones", ids)
		}
	} else if returns != "" {
		return different("the ids", ids, []string{returns})
	}
	return nil
}

func messageOf(fields map[string]json.RawMessage) (m svcclient.Message, err error) {
	for name, value := range fields {
		switch {
		case name == "payload" && string(value) == "null":
			m.JSON = value // Go has no other null for an any.
		case name == "payload":
			err = json.Unmarshal(value, &m.Payload)
		case string(value) == "null": // As if it were not given.
		case name == "headers":
			err = json.Unmarshal(value, &m.Headers)
		case name == "json":
			var text string
			text, err = textOf(value)
			m.JSON = json.RawMessage(text)
		case name == "key":
			var text string
			text, err = textOf(value)
			m.Key = &text
		case name == "topic":
			m.Topic, err = textOf(value)
		case name == "destination":
			m.Destination, err = textOf(value)
		case name == "id":
			m.ID, err = textOf(value)
		case name == "deliverAt":
			m.DeliverAt, err = timeOf(value)
		case name == "expiresAt":
			m.ExpiresAt, err = timeOf(value)
		default:
			err = errors.New("the field is unknown")
		}
		if err != nil {
			return m, fmt.Errorf("%s of a message: %w", name, err)
		}
	}
	return m, nil
}

// textOf reads a text, or what stands for one.
func textOf(value json.RawMessage) (string, error) {
	var text string
	if value[0] == '"' {
		err := json.Unmarshal(value, &text)
		return text, err
	}
	var special struct {
		Repeat    []any `json:"$repeat"`
		Surrogate bool  `json:"$surrogate"`
		Quoted    bool
	}
	if err := json.Unmarshal(value, &special); err != nil {
		return "", err
	}
	if special.Surrogate {
		return "a\xed\xa0\xbd", nil // U+D83D as UTF-8 would have it.
	}
	text = strings.Repeat(special.Repeat[0].(string), int(special.Repeat[1].(float64)))
	if special.Quoted {
		text = `"` + text + `"`
	}
	return text, nil
}

func timeOf(value json.RawMessage) (at time.Time, err error) {
	err = json.Unmarshal(value, &at)
	return at, err
}

// compareRows compares rows as cases name their columns.
func (e *environment) compareRows(ctx context.Context, c *contractCase) error {
	or := func(name, usual string) string {
		if name == "" {
			name = usual
		}
		return pgx.Identifier{name}.Sanitize()
	}
	iso := func(column string) string {
		return "to_char(" + column + ` AT TIME ZONE 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS.MS"Z"')`
	}
	o := c.Options
	payload := or(o.Columns.Payload, "payload")
	rows, err := texts(e.db.QueryContext(ctx, `SELECT to_jsonb(r)::text FROM (
		SELECT id::text, topic, length(topic) AS "topicLength", `+or(o.Columns.Key, "key")+` AS key, `+payload+` AS payload,
			length(`+payload+`) AS "payloadLength", headers, destination, state, `+iso("scheduled_at")+` AS "scheduledAt",
			`+iso("expires_at")+` AS "expiresAt"
		FROM `+or(o.Schema, "public")+"."+or(o.Table, "outbox")+` ORDER BY sequence) r`))
	if err != nil {
		return err
	}
	if len(rows) != len(c.Rows) {
		return fmt.Errorf("the outbox has %d rows, expected %d", len(rows), len(c.Rows))
	}
	for n, row := range rows {
		var got map[string]any
		if err := json.Unmarshal([]byte(*row), &got); err != nil {
			return err
		}
		for column, want := range c.Rows[n] {
			if err := different(fmt.Sprintf("%s of row %d", column, n), got[column], want); err != nil {
				return err
			}
		}
	}
	return nil
}

func texts(rows *sql.Rows, err error) ([]*string, error) {
	if err != nil {
		return nil, err
	}
	defer rows.Close()
	all := []*string{}
	for rows.Next() {
		var text *string
		if err := rows.Scan(&text); err != nil {
			return nil, err
		}
		all = append(all, text)
	}
	return all, rows.Err()
}

type spanKey struct{}

// activeSpan stands for OpenTelemetry.
func activeSpan(ctx context.Context) string {
	span, _ := ctx.Value(spanKey{}).(string)
	return span
}
