package svcclient

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"
)

// recorded is a transaction that records its statements.
type recorded struct {
	statements []string
	values     [][]any
	affected   int64
}

func (r *recorded) ExecContext(_ context.Context, statement string, args ...any) (sql.Result, error) {
	r.statements = append(r.statements, statement)
	r.values = append(r.values, args)
	return driver.RowsAffected(r.affected), nil
}

const testID = "5f0c1c52-6d0e-5b38-9c1e-0a4b7d2f9e11"

func TestStatements(t *testing.T) {
	at := time.Date(2031, 2, 3, 5, 5, 6, 789_900_000, time.FixedZone("", 3600))
	messages := []Message{
		{ID: testID, Topic: "a", Payload: map[string]int{"n": 1}, Key: Key("k")},
		{ID: testID, Topic: "b", JSON: json.RawMessage(" 1.0 "), Headers: map[string]string{"h": "v"}, DeliverAt: at},
	}
	values := []any{testID, "a", `{"n":1}`, "k", testID, "b", " 1.0 ", `{"h":"v"}`, "2031-02-03T04:05:06.789Z"}
	for _, c := range []struct {
		name   string
		wrap   func(Transaction) Transaction
		outbox Outbox
		want   string
	}{
		{"PostgreSQL", func(tx Transaction) Transaction { return tx }, Outbox{},
			`INSERT INTO "outbox" ("id", "topic", "payload", "key", "headers", "scheduled_at") VALUES ` +
				`($1::uuid, $2, $3, $4, DEFAULT, DEFAULT), ($5::uuid, $6, $7, DEFAULT, $8::jsonb, $9::timestamptz)`},
		{"SQL Server", SQLServer, Outbox{Schema: "my]shop", Table: `out"box`, Columns: Columns{Key: "Order"}},
			`INSERT INTO "my]shop"."out""box" ("id", "topic", "payload", "Order", "headers", "scheduled_at") VALUES ` +
				`(@p1, @p2, @p3, @p4, DEFAULT, DEFAULT), (@p5, @p6, @p7, DEFAULT, @p8, @p9)`},
	} {
		t.Run(c.name, func(t *testing.T) {
			tx := &recorded{}
			ids, err := c.outbox.EnqueueMany(context.Background(), c.wrap(tx), messages)
			if err != nil || !slices.Equal(ids, []string{testID, testID}) {
				t.Fatalf("found %v, %v", ids, err)
			}
			if !slices.Equal(tx.statements, []string{c.want}) {
				t.Errorf("found\n%s, expected\n%s", tx.statements, c.want)
			}
			if !reflect.DeepEqual(tx.values, [][]any{values}) {
				t.Errorf("found %v, expected %v", tx.values, values)
			}
		})
	}
}

func TestManyMessagesAreSeveralStatements(t *testing.T) {
	tx := &recorded{}
	messages := make([]Message, 2*mostRows+1)
	for n := range messages {
		messages[n] = Message{Topic: "t", Payload: n}
	}
	ids, err := EnqueueMany(context.Background(), SQLServer(tx), messages)
	if err != nil || len(ids) != len(messages) || len(tx.statements) != 3 || len(tx.values[2]) != 3 {
		t.Errorf("found %d ids, %d statements, %v", len(ids), len(tx.statements), err)
	}
}

func TestRefusals(t *testing.T) {
	for name, c := range map[string]struct {
		message Message
		want    string
	}{
		"no topic":           {Message{Payload: 1}, "topic"},
		"a long topic":       {Message{Topic: strings.Repeat("😀", 501), Payload: 1}, "topic"},
		"no payload":         {Message{Topic: "t"}, "payload"},
		"a channel":          {Message{Topic: "t", Payload: make(chan int)}, "payload"},
		"no text as JSON":    {Message{Topic: "t", JSON: json.RawMessage{}}, "payload"},
		"JSON of other code": {Message{Topic: "t", JSON: json.RawMessage("\"\xff\"")}, "payload"},
		"a NUL in a header":  {Message{Topic: "t", Payload: 1, Headers: map[string]string{"a\x00": ""}}, "headers"},
		"a late time":        {Message{Topic: "t", Payload: 1, ExpiresAt: time.Date(10000, 1, 1, 0, 0, 0, 0, time.UTC)}, "time"},
		"a short id":         {Message{Topic: "t", Payload: 1, ID: "17"}, "id"},
	} {
		tx := &recorded{}
		_, err := Enqueue(context.Background(), tx, c.message)
		var refused *EnqueueError
		if !errors.As(err, &refused) || refused.Code != c.want || len(tx.statements) != 0 {
			t.Errorf("%s: found %v, expected the code %s", name, err, c.want)
		}
	}
	for _, outbox := range []Outbox{{Table: "a\x00"}, {Cells: []string{"a", ""}}, {Columns: Columns{Key: "\x00"}}} {
		var refused *EnqueueError
		if _, err := outbox.EnqueueMany(context.Background(), &recorded{}, nil); !errors.As(err, &refused) || refused.Code != "options" {
			t.Errorf("%v: found %v, expected the code options", outbox, err)
		}
	}
}

func TestIDsIncrease(t *testing.T) {
	before := ""
	for n := 0; n < 10_000; n++ {
		id := newID()
		if !uuid.MatchString(id) || id[14] != '7' || !strings.ContainsRune("89ab", rune(id[19])) || id <= before {
			t.Fatalf("found %s after %s, expected a larger UUID of version 7", id, before)
		}
		before = id
	}
	last.Lock()
	last.time = 1 << 59 // The clock was set back.
	last.Unlock()
	if first, second := newID(), newID(); first <= before || second <= first {
		t.Errorf("found %s and %s after %s, expected larger ones", first, second, before)
	}
	last.Lock()
	last.time = 0
	last.Unlock()
}

func TestOnce(t *testing.T) {
	calls := 0
	failure := errors.New("no")
	for _, c := range []struct {
		affected int64
		ran      bool
		err      error
	}{{1, true, failure}, {0, false, nil}} {
		tx := &recorded{affected: c.affected}
		ran, err := Once(context.Background(), tx, "m", func() error { calls++; return failure })
		if ran != c.ran || err != c.err {
			t.Errorf("found %v, %v, expected %v, %v", ran, err, c.ran, c.err)
		}
	}
	if calls != 1 {
		t.Errorf("handle was called %d times, expected once", calls)
	}
}

type tag int64

func (t tag) RowsAffected() int64 { return int64(t) }

type pgxLike struct{ err error }

func (p pgxLike) Exec(context.Context, string, ...any) (tag, error) { return 3, p.err }

func TestFromPgx(t *testing.T) {
	result, err := FromPgx(pgxLike{}).ExecContext(context.Background(), "")
	if err != nil {
		t.Fatal(err)
	}
	if affected, err := result.RowsAffected(); affected != 3 || err != nil {
		t.Errorf("found %d, %v, expected 3", affected, err)
	}
	failure := errors.New("no")
	if _, err := FromPgx(pgxLike{failure}).ExecContext(context.Background(), ""); err != failure {
		t.Errorf("found %v, expected %v", err, failure)
	}
}

// The statements are those of the documentation.
func TestPullStatements(t *testing.T) {
	const documented = "../../docs/examples/pull"
	if _, err := os.Stat(documented); err != nil {
		t.Skip("the documentation is not beside this module")
	}
	files, err := filepath.Glob("sql/*.sql")
	if err != nil || len(files) == 0 {
		t.Fatalf("found no statements: %v", err)
	}
	for _, file := range files {
		got, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		want, err := os.ReadFile(filepath.Join(documented, filepath.Base(file)))
		if err != nil || string(got) != string(want) {
			t.Errorf("%s differs from docs/examples/pull: %v", file, err)
		}
	}
}
