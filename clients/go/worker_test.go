package svcclient

import (
	"bytes"
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"
)

// memory is a source with messages in memory.
type memory struct {
	mu         sync.Mutex
	waiting    []PulledMessage
	log        []string
	renewal    error  // What renewals return.
	noResult   error  // What Fail returns.
	hangs      bool   // A renewal ends with its context only.
	countsDead bool   // A dead message is an attempt like others.
	taken      string // The id of a message that another worker has taken.
	isLost     bool   // What Fail finds.
}

func (m *memory) note(format string, args ...any) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.log = append(m.log, fmt.Sprintf(format, args...))
}

func (m *memory) notes() []string {
	m.mu.Lock()
	defer m.mu.Unlock()
	return slices.Clone(m.log)
}

func (m *memory) Claim(_ context.Context, most int, _ time.Duration) (Claim, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	n := min(most, len(m.waiting))
	claim := Claim{Token: "token", Messages: slices.Clone(m.waiting[:n])}
	m.waiting = m.waiting[n:]
	return claim, nil
}

func (m *memory) Renew(ctx context.Context, claim Claim, _ time.Duration) (ids []string, err error) {
	if m.hangs {
		<-ctx.Done()
		return nil, ctx.Err()
	}
	for _, message := range claim.Messages {
		if message.ID != m.taken {
			ids = append(ids, message.ID)
		}
	}
	return ids, m.renewal
}

func (m *memory) Handled(_ context.Context, _ Claim, id string, handle func(*sql.Tx) error) (bool, error) {
	err := handle(nil)
	if err == nil {
		m.note("done %s", id)
	}
	return err == nil, err
}

func (m *memory) Fail(_ context.Context, _ Claim, id string, failure Failure) (Result, error) {
	isDead := failure.IsDead && !m.countsDead
	m.note("fail %s %v %s, dead: %v", id, failure.Delay, failure.Reason, isDead)
	return resultOf(isDead, m.isLost), m.noResult
}

func (m *memory) Release(context.Context, Claim) error {
	m.note("release")
	return nil
}

func messagesOf(ids ...string) []PulledMessage {
	messages := []PulledMessage{}
	for _, id := range ids {
		aggregate := id[:1]
		messages = append(messages, PulledMessage{ID: id, AggregateID: &aggregate, Attempt: 3})
	}
	return messages
}

// runUntil runs a worker until a number of messages have ended, and returns their results.
func runUntil(t *testing.T, worker Worker, results int) []string {
	t.Helper()
	ctx, stop := context.WithTimeout(context.Background(), 20*time.Second)
	defer stop()
	var mu sync.Mutex
	ended := []string{}
	worker.Ended = func(message PulledMessage, result Result, _ time.Duration) {
		mu.Lock()
		defer mu.Unlock()
		ended = append(ended, message.ID+" "+string(result))
		if len(ended) == results {
			stop()
		}
	}
	worker.Poll = time.Millisecond
	if err := worker.Run(ctx); err != nil {
		t.Fatal(err)
	}
	slices.Sort(ended)
	return ended
}

func TestResults(t *testing.T) {
	for _, countsDead := range []bool{false, true} {
		testResults(t, countsDead)
	}
}

func testResults(t *testing.T, countsDead bool) {
	source := &memory{countsDead: countsDead, waiting: messagesOf("a0", "a1", "b0", "b1", "c0", "c1", "d0")}
	handler := func(_ context.Context, m PulledMessage, _ *sql.Tx) error {
		switch m.ID {
		case "a0":
			return fmt.Errorf("no %s", m.ID)
		case "b0":
			return fmt.Errorf("never: %w", Dead("bad"))
		case "c0":
			return Retry(5*time.Second, "later")
		case "d0":
			panic("oh")
		}
		return nil
	}
	ended := runUntil(t, Worker{Source: source, Concurrency: 7, Handler: handler}, 7)
	result := map[bool]string{false: "dead", true: "retry"}[countsDead]
	want := []string{"a0 retry", "a1 released", "b0 " + result, "b1 released", "c0 retry", "c1 released", "d0 retry"}
	if !slices.Equal(ended, want) {
		t.Errorf("found %v, expected %v", ended, want)
	}
	got := source.notes()
	slices.Sort(got)
	want = []string{
		"fail a0 4s no a0, dead: false",
		fmt.Sprintf("fail b0 4s never: bad, dead: %v", !countsDead),
		"fail c0 5s later, dead: false",
		"fail d0 4s the handler panicked: oh, dead: false",
	}
	if !slices.Equal(got, want) {
		t.Errorf("found %v, expected %v", got, want)
	}
}

func TestResultThatCannotBeWritten(t *testing.T) {
	failed := make(chan error, 1)
	source := &memory{waiting: messagesOf("a0", "a1"), noResult: errors.New("the database is gone")}
	ended := runUntil(t, Worker{
		Source: source, Concurrency: 2,
		Handler: func(context.Context, PulledMessage, *sql.Tx) error { return errors.New("no") },
		Failed:  func(err error) { failed <- err },
	}, 2)
	if want := []string{"a0 lost", "a1 released"}; !slices.Equal(ended, want) {
		t.Errorf("found %v, expected %v", ended, want)
	}
	if err := <-failed; err != source.noResult {
		t.Errorf("found %v, expected %v", err, source.noResult)
	}
}

func TestFailureOfALostMessage(t *testing.T) {
	source := &memory{waiting: messagesOf("a0", "a1"), isLost: true}
	ended := runUntil(t, Worker{
		Source: source, Concurrency: 2,
		Handler: func(context.Context, PulledMessage, *sql.Tx) error { return errors.New("no") },
	}, 2)
	if want := []string{"a0 lost", "a1 released"}; !slices.Equal(ended, want) || !slices.Contains(source.notes(), "release") {
		t.Errorf("found %v and %v, expected %v and a release", ended, source.notes(), want)
	}
}

type pointerError struct{ text string }

func (e *pointerError) Error() string { return e.text }

func TestOddErrors(t *testing.T) {
	source := &memory{waiting: messagesOf("a0", "b0")}
	handler := func(_ context.Context, m PulledMessage, _ *sql.Tx) error {
		if m.ID == "a0" {
			var none *pointerError
			return none
		}
		return errors.New("\x00" + strings.Repeat("x", 3000))
	}
	ended := runUntil(t, Worker{Source: source, Concurrency: 2, Handler: handler}, 2)
	notes := source.notes()
	slices.Sort(notes)
	isPanic := strings.HasPrefix(notes[0], "fail a0 4s the handler panicked: ")
	if !isPanic || notes[1] != "fail b0 4s \ufffd"+strings.Repeat("x", 1999)+", dead: false" {
		t.Errorf("found %v and %v, expected two failures", ended, notes)
	}
}

func TestLeaseIsLost(t *testing.T) {
	var log bytes.Buffer
	usual := slog.Default()
	slog.SetDefault(slog.New(slog.NewTextHandler(&log, nil)))
	defer slog.SetDefault(usual)
	for name, c := range map[string]struct {
		source *memory
		want   []string
		notes  []string
	}{
		"no renewal succeeds": {&memory{renewal: errors.New("no renewal")}, []string{"a0 lost", "a1 lost", "b0 lost"}, nil},
		"renewals hang":       {&memory{hangs: true}, []string{"a0 lost", "a1 lost", "b0 lost"}, nil},
		"one message is taken": {
			&memory{taken: "a0"}, []string{"a0 lost", "a1 released", "b0 done"}, []string{"done b0", "release"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			source := c.source
			source.waiting = messagesOf("a0", "a1", "b0")
			lost := make(chan struct{})
			handler := func(ctx context.Context, m PulledMessage, _ *sql.Tx) error {
				if m.ID == "b0" && source.taken != "" {
					<-lost
					return nil
				}
				<-ctx.Done()
				if cause := context.Cause(ctx); cause != ErrLeaseLost {
					t.Errorf("found the cause %v, expected a lost lease", cause)
				}
				if m.ID == "a0" {
					close(lost)
				}
				return ctx.Err()
			}
			ended := runUntil(t, Worker{Source: source, Concurrency: 3, Lease: 90 * time.Millisecond, Handler: handler}, 3)
			if !slices.Equal(ended, c.want) || !slices.Equal(source.notes(), c.notes) {
				t.Errorf("found %v and %v, expected %v and %v", ended, source.notes(), c.want, c.notes)
			}
		})
	}
	for _, want := range []string{"error=\"no renewal\"", "error=\"context deadline exceeded\""} {
		if !strings.Contains(log.String(), want) {
			t.Errorf("the log is %s, expected %s", &log, want)
		}
	}
}

func TestStop(t *testing.T) {
	source := &memory{waiting: messagesOf("a0", "a1", "b0")}
	ctx, stop := context.WithCancel(context.Background())
	var mu sync.Mutex
	started, causes := 0, []error{}
	handler := func(ctx context.Context, m PulledMessage, _ *sql.Tx) error {
		mu.Lock()
		started++
		if started == 2 {
			stop()
		}
		mu.Unlock()
		if m.ID == "b0" {
			return nil
		}
		<-ctx.Done()
		mu.Lock()
		defer mu.Unlock()
		causes = append(causes, context.Cause(ctx))
		return nil // Too late: it is not acknowledged.
	}
	err := Worker{Source: source, Concurrency: 3, StopTimeout: 50 * time.Millisecond, Handler: handler}.Run(ctx)
	if err != nil || !slices.Equal(causes, []error{ErrStopped}) {
		t.Errorf("found %v and the causes %v, expected a stop", err, causes)
	}
	if got := source.notes(); !slices.Equal(got, []string{"done b0", "release"}) {
		t.Errorf("found %v, expected that the others are given back", got)
	}
}

func TestOptionsOfWorker(t *testing.T) {
	if err := (Worker{}).Run(context.Background()); err == nil {
		t.Error("found no error, expected one for a worker without a source")
	}
	for attempt, want := range map[int]time.Duration{1: time.Second, 6: 32 * time.Second, 7: time.Minute, 1000: time.Minute} {
		if got := retryDelay(attempt); got != want {
			t.Errorf("attempt %d: found %v, expected %v", attempt, got, want)
		}
	}
}

func TestPayloadsAreTexts(t *testing.T) {
	deep := strings.Repeat("[", 20_000) + strings.Repeat("]", 20_000)
	want := []string{`{"payload": {"payload": [1.0, "}]\""]}, "n": 1e999}`, deep, `"no \" json"`, "12345678901234567890", "null"}
	messages := []string{}
	for n, payload := range want {
		const format = `{"id": "%d", "eventType": "payload", "headers": {"payload": "x"}, "payload": %s , "attempt": 2}`
		messages = append(messages, fmt.Sprintf(format, n, payload))
	}
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		_, _ = w.Write([]byte(`{"claimToken":"t","messages":[` + strings.Join(messages, ", ") + "]}"))
	}))
	defer server.Close()
	claim, err := HTTPSource{URL: server.URL, Source: "s"}.Claim(context.Background(), 9, time.Second)
	if err != nil || claim.Token != "t" || len(claim.Messages) != len(want) {
		t.Fatalf("found %v and %d messages of %q", err, len(claim.Messages), claim.Token)
	}
	for n, m := range claim.Messages {
		if string(m.Payload) != want[n] || m.ID != fmt.Sprint(n) || m.Headers["payload"] != "x" || m.Attempt != 2 {
			t.Errorf("found %.200v, expected the payload %.200s", m, want[n])
		}
	}
}

func TestHTTPSource(t *testing.T) {
	answers := map[string]string{
		"claim": `{"claimToken":"t","messages":[{"id":"m","aggregateId":null,"eventType":"e","idempotencyKey":"k",
			"correlationId":null,"attempt":2,"headers":{"n":1,"H":"v"},"payload": {"n": 1.0}}]}`,
		"extend": `{"extended":["m"],"lost":[]}`,
		"ack":    `{"error":"nothing held","acknowledged":[],"lost":["m"]}`,
		"nack":   `{"retried":["n"],"dead":["m"],"released":[],"lost":["o"]}`,
	}
	requests := []string{}
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		var body map[string]any
		_ = json.NewDecoder(r.Body).Decode(&body)
		text, _ := json.Marshal(body)
		operation := r.URL.Path[strings.LastIndex(r.URL.Path, "/")+1:]
		requests = append(requests, r.URL.EscapedPath()+" "+r.Header.Get("Authorization")+" "+string(text))
		switch {
		case operation == "ack":
			w.WriteHeader(http.StatusConflict)
		case answers[operation] == "":
			w.WriteHeader(http.StatusInternalServerError)
		}
		_, _ = w.Write([]byte(answers[operation]))
	}))
	defer server.Close()
	header := http.Header{"Authorization": {"Bearer b"}}
	source := HTTPSource{URL: server.URL + "/pull/", Source: "web shop", Header: header}
	ctx := context.Background()
	claim, err := source.Claim(ctx, 2, time.Second)
	if err != nil || len(claim.Messages) != 1 {
		t.Fatalf("found %v, %v", claim, err)
	}
	m := claim.Messages[0]
	isRead := m.ID == "m" && m.AggregateID == nil && m.EventType == "e" && m.Attempt == 2
	if !isRead || m.Headers["H"] != "v" || string(m.Payload) != `{"n": 1.0}` {
		t.Errorf("found %+v", m)
	}
	if kept, err := source.Renew(ctx, claim, time.Second); err != nil || !slices.Equal(kept, []string{"m"}) {
		t.Errorf("found %v, %v", kept, err)
	}
	if held, err := source.Handled(ctx, claim, "m", func(*sql.Tx) error { return nil }); held || err != nil {
		t.Errorf("found %v, %v, expected that the message is lost", held, err)
	}
	if got, err := source.Fail(ctx, claim, "m", Failure{Reason: "no", Delay: time.Second}); got != ResultDead || err != nil {
		t.Errorf("found %v, %v, expected that the message is dead", got, err)
	}
	if got, err := source.Fail(ctx, claim, "n", Failure{Delay: 48 * time.Hour}); got != ResultRetry || err != nil {
		t.Errorf("found %v, %v, expected that the message comes again", got, err)
	}
	if got, err := source.Fail(ctx, claim, "o", Failure{}); got != ResultLost || err != nil {
		t.Errorf("found %v, %v, expected that the message is lost", got, err)
	}
	answers["nack"] = ""
	if _, err := source.Fail(ctx, claim, "m", Failure{}); err == nil {
		t.Error("found no error, expected one for the status 500")
	}
	want := []string{
		`/pull/web%20shop/claim Bearer b {"leaseMs":1000,"max":2,"waitMs":500}`,
		`/pull/web%20shop/extend Bearer b {"claimToken":"t","leaseMs":1000}`,
		`/pull/web%20shop/ack Bearer b {"claimToken":"t","ids":["m"]}`,
		`/pull/web%20shop/nack Bearer b {"claimToken":"t","delayMs":1000,"error":"no","ids":["m"]}`,
		`/pull/web%20shop/nack Bearer b {"claimToken":"t","delayMs":86400000,"error":"","ids":["n"]}`,
		`/pull/web%20shop/nack Bearer b {"claimToken":"t","delayMs":0,"error":"","ids":["o"]}`,
		`/pull/web%20shop/nack Bearer b {"claimToken":"t","delayMs":0,"error":"","ids":["m"]}`,
	}
	if !slices.Equal(requests, want) {
		t.Errorf("found\n%s\nexpected\n%s", strings.Join(requests, "\n"), strings.Join(want, "\n"))
	}
}
