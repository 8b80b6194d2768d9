package svcclient

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"regexp"
	"slices"
	"strings"
	"sync"
	"time"
	"unicode/utf16"
	"unicode/utf8"
)

// Message is a message for the outbox. Set exactly one of Payload and JSON.
type Message struct {
	// Topic selects the route, such as orders.paid. It has at most 1000 characters.
	Topic string
	// Payload is any value that encoding/json can write. It is written with [json.Marshal]. For JSON's null set JSON to
	// "null".
	Payload any
	// JSON is JSON text, which is sent byte for byte.
	JSON json.RawMessage
	// Key orders messages: those of one key are delivered in order. A message whose key is nil has no order. It has at
	// most 800 characters. See [Key].
	Key *string
	// Headers are sent with the message.
	Headers map[string]string
	// Destination is the name of a destination, whatever the routes say. It has at most 200 characters.
	Destination string
	// DeliverAt is the earliest time of the delivery, and ExpiresAt the latest. There is no limit if it is zero.
	DeliverAt, ExpiresAt time.Time
	// ID is a UUID, by default a new one of version 7. Receivers de-duplicate by it.
	ID string
}

// Key returns a key for [Message]. The empty text is a key, too.
func Key(text string) *string { return &text }

// Traceparent returns the traceparent of the active span, or "" without one. It becomes a header of each message that
// does not set this header. Set it before the first message, for OpenTelemetry to:
//
//	func(ctx context.Context) string {
//		carrier := propagation.MapCarrier{}
//		propagation.TraceContext{}.Inject(ctx, carrier)
//		return carrier["traceparent"]
//	}
var Traceparent = func(context.Context) string { return "" }

// EnqueueError refuses a message before its statement. The caller's transaction can continue.
type EnqueueError struct {
	// Code is the field that the database would refuse: topic, payload, key, headers, destination, time or id; or it is
	// options, for the name of a table, schema or column.
	Code    string
	Message string
}

func (e *EnqueueError) Error() string { return "svcclient: " + e.Message }

// Outbox is the table for messages. The zero value is the outbox of the service; set the names that differ from it.
type Outbox struct {
	// Table is outbox by default.
	Table string
	// Schema is by default the one that the connection finds.
	Schema string
	// Columns renames columns.
	Columns Columns
	// Cells are the schemas of the cells, in their order. Each message goes to the cell of its key, see [CellOf].
	Cells []string
}

// Columns are the names of columns. An empty name is the service's own.
type Columns struct {
	ID, Topic, Payload, Key, Headers, Destination, DeliverAt, ExpiresAt string
}

func (c Columns) names() []string {
	return []string{
		cmp.Or(c.ID, "id"), cmp.Or(c.Topic, "topic"), cmp.Or(c.Payload, "payload"), cmp.Or(c.Key, "key"),
		cmp.Or(c.Headers, "headers"), cmp.Or(c.Destination, "destination"),
		cmp.Or(c.DeliverAt, "scheduled_at"), cmp.Or(c.ExpiresAt, "expires_at"),
	}
}

// casts has the cast of each column for PostgreSQL: an own column may be of another type, such as text.
var casts = [...]string{"::uuid", "", "", "", "::jsonb", "", "::timestamptz", "::timestamptz"}

// Enqueue writes a message in the caller's transaction, and returns its id. It returns an [EnqueueError], before any
// statement, for a message that the database would refuse.
func Enqueue(ctx context.Context, tx Transaction, message Message) (string, error) {
	return Outbox{}.Enqueue(ctx, tx, message)
}

// EnqueueMany writes several messages in one statement, in this order, and returns their ids.
func EnqueueMany(ctx context.Context, tx Transaction, messages []Message) ([]string, error) {
	return Outbox{}.EnqueueMany(ctx, tx, messages)
}

// Enqueue is [Enqueue] for this outbox.
func (o Outbox) Enqueue(ctx context.Context, tx Transaction, message Message) (string, error) {
	message.ID = cmp.Or(message.ID, newID())
	_, err := o.EnqueueMany(ctx, tx, []Message{message})
	return message.ID, err
}

// EnqueueMany is [EnqueueMany] for this outbox. With cells there is a statement for each cell. The error is an
// [EnqueueError] with the code options for a bad name of a table, schema or column.
func (o Outbox) EnqueueMany(ctx context.Context, tx Transaction, messages []Message) ([]string, error) {
	schemas := o.Cells
	if len(schemas) == 0 {
		schemas = []string{o.Schema}
	}
	all := strings.Join(slices.Concat(schemas, o.Columns.names(), []string{o.Table}), "")
	if strings.Contains(all, "\x00") || slices.Contains(o.Cells, "") {
		return nil, &EnqueueError{"options", "the name of a cell is empty, or a name holds a NUL"}
	}
	ids := make([]string, len(messages))
	bySchema := make([][]row, len(schemas))
	for n, message := range messages {
		message.ID = cmp.Or(message.ID, newID())
		r, err := rowOf(ctx, message)
		if err != nil {
			return nil, err
		}
		cell := CellOf(message.Key, len(schemas))
		ids[n], bySchema[cell] = message.ID, append(bySchema[cell], r)
	}
	for cell, rows := range bySchema {
		for ; len(rows) > 0; rows = rows[min(mostRows, len(rows)):] {
			statement, values := o.insert(tx, schemas[cell], rows[:min(mostRows, len(rows))])
			if _, err := tx.ExecContext(ctx, statement, values...); err != nil {
				return nil, err
			}
		}
	}
	return ids, nil
}

// mostRows keeps a statement below the 2100 parameters that SQL Server takes.
const mostRows = 250

// insert names only the columns that a row needs: an application may have no right to the others.
func (o Outbox) insert(tx Transaction, schema string, rows []row) (statement string, values []any) {
	parameter := either(tx, "$%d%s", "@p%[1]d") // SQL Server needs no cast.
	table := quoted(cmp.Or(o.Table, "outbox"))
	if schema != "" {
		table = quoted(schema) + "." + table
	}
	var used []int
	var names, lists []string
	for n, name := range o.Columns.names() {
		if slices.ContainsFunc(rows, func(r row) bool { return r[n] != nil }) {
			used, names = append(used, n), append(names, quoted(name))
		}
	}
	for _, r := range rows {
		var list []string
		for _, n := range used {
			if r[n] == nil {
				list = append(list, "DEFAULT")
				continue
			}
			values = append(values, r[n])
			list = append(list, fmt.Sprintf(parameter, len(values), casts[n]))
		}
		lists = append(lists, "("+strings.Join(list, ", ")+")")
	}
	return "INSERT INTO " + table + " (" + strings.Join(names, ", ") + ") VALUES " + strings.Join(lists, ", "), values
}

// quoted is for SQL Server, too: its drivers set QUOTED_IDENTIFIER, which the indexes of the outbox require.
func quoted(name string) string { return `"` + strings.ReplaceAll(name, `"`, `""`) + `"` }

// row has a value for each column; nil is the default of the column.
type row [len(casts)]any

// rowOf returns an EnqueueError for what the database would refuse.
func rowOf(ctx context.Context, m Message) (row, error) {
	var c checks
	c.refuseIf(!uuid.MatchString(m.ID), "id", "the id is %q, expected a UUID", m.ID)
	c.refuseIf(strings.TrimSpace(m.Topic) == "", "topic", "the topic is %q, expected a text that is not blank", m.Topic)
	var key any
	if m.Key != nil {
		c.text("key", *m.Key, 800)
		key = *m.Key
	}
	r := row{
		m.ID, c.text("topic", m.Topic, 1000), c.payload(m), key, c.headers(ctx, m.Headers),
		c.text("destination", m.Destination, 200), c.instant("DeliverAt", m.DeliverAt), c.instant("ExpiresAt", m.ExpiresAt),
	}
	return r, c.refused
}

// checks holds the first refusal.
type checks struct{ refused error }

func (c *checks) refuseIf(isBad bool, code, format string, args ...any) {
	if isBad && c.refused == nil {
		c.refused = &EnqueueError{code, fmt.Sprintf(format, args...)}
	}
}

// text returns nil for the empty text.
func (c *checks) text(code, text string, most int) any {
	isLong := len(text) > most && len(utf16.Encode([]rune(text))) > most // As SQL Server counts.
	isBad := strings.ContainsRune(text, 0) || !utf8.ValidString(text)
	c.refuseIf(isLong, code, "the %s has more than %d characters", code, most)
	c.refuseIf(isBad, code, "the %s holds a NUL, or is not valid UTF-8", code)
	if text == "" {
		return nil
	}
	return text
}

func (c *checks) payload(m Message) any {
	isBad := (m.Payload == nil) == (m.JSON == nil)
	c.refuseIf(isBad, "payload", "Payload and JSON are both set, or both missing, expected exactly one")
	text, err := json.Marshal(m.Payload)
	if m.JSON != nil {
		text, err = m.JSON, json.Unmarshal(m.JSON, new(json.RawMessage))
	}
	c.refuseIf(err != nil, "payload", "the payload is not JSON: %v", err)
	return c.text("payload", string(text), len(text))
}

func (c *checks) headers(ctx context.Context, own map[string]string) any {
	headers, isTraced := map[string]string{}, false
	for name, value := range own {
		text := name + ": " + value
		c.text("headers", text, len(text))
		headers[name] = value
		isTraced = isTraced || strings.EqualFold(name, "traceparent")
	}
	if traceparent := Traceparent(ctx); traceparent != "" && !isTraced {
		headers["traceparent"] = traceparent
	}
	if len(headers) == 0 {
		return nil
	}
	text, _ := json.Marshal(headers) // Texts.
	return string(text)
}

func (c *checks) instant(field string, at time.Time) any {
	if at.IsZero() {
		return nil
	}
	year := at.UTC().Year()
	c.refuseIf(year < 1 || year > 9999, "time", "%s is in the year %d, expected one from 1 to 9999", field, year)
	return at.UTC().Format("2006-01-02T15:04:05.000Z")
}

var uuid = regexp.MustCompile(`(?i)^[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}$`)

// last is the time of the last id: 48 bits of ms, and 12 bits that count within one.
var last struct {
	sync.Mutex
	time uint64
}

// newID returns a UUID of version 7 (RFC 9562), larger than all before it in this process. An id is unique, but no
// secret: its random bits need not be those of crypto/rand, which may fail.
func newID() string {
	last.Lock()
	defer last.Unlock()
	last.time = max(last.time+1, uint64(time.Now().UnixMilli())<<12)
	ms, count := last.time>>12, last.time&0xfff
	tail := 1<<63 | rand.Uint64()>>2 // The variant, and 62 bits.
	return fmt.Sprintf("%08x-%04x-%04x-%04x-%012x", ms>>16, ms&0xffff, 0x7000|count, tail>>48, tail&(1<<48-1))
}

// CellOf returns the cell of a key among the given number of cells, from 0, as the service chooses it. A message
// without a key belongs to the first.
func CellOf(key *string, cells int) int {
	if key == nil || cells < 2 {
		return 0
	}
	sum := sha256.Sum256([]byte(*key))
	return int(uint64(binary.BigEndian.Uint32(sum[:])) % uint64(cells))
}
