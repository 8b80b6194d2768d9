package svcclient

import (
	"bytes"
	"cmp"
	"context"
	"crypto/rand"
	"crypto/sha256"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"maps"
	"math"
	"regexp"
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
	// Payload is any value that encoding/json can write. It is written without the escapes for HTML. For JSON's null set
	// JSON to "null".
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
// does not set this header. The README shows the function for OpenTelemetry. Set it before the first message.
var Traceparent = func(context.Context) string { return "" }

// EnqueueError refuses a message before its statement. The caller's transaction can continue.
type EnqueueError struct {
	// Code is the field that the database would refuse: topic, payload, key, headers, destination, time or id; or it is
	// options, for the name of a table, schema or column.
	Code    string
	Message string
}

func (e *EnqueueError) Error() string { return "svcclient: " + e.Message }

// row has the values of the columns; nil is NULL.
type row [8]*string

var columns = [len(row{})]struct {
	name, cast string // Without the cast, PostgreSQL would take a text for a text. An own column may be of another type.
	hasDefault bool   // It is NOT NULL.
}{
	{"id", "::uuid", false}, {"topic", "", false}, {"payload", "", false}, {"key", "", false}, {"headers", "::jsonb", true},
	{"destination", "", false}, {"scheduled_at", "::timestamptz", true}, {"expires_at", "::timestamptz", false},
}

// rowOf returns an EnqueueError for what the database would refuse.
func rowOf(ctx context.Context, m Message) (row, error) {
	var c checks
	c.refuseIf(strings.TrimSpace(m.Topic) == "", "topic", "the topic is %q, expected a text that is not blank", m.Topic)
	c.text("topic", m.Topic, 1000)
	if m.Key != nil {
		c.text("key", *m.Key, 800)
	}
	c.text("destination", m.Destination, 200)
	id := cmp.Or(m.ID, newID())
	c.refuseIf(!uuid.MatchString(id), "id", "the id is %q, expected a UUID", id)
	return row{
		&id, &m.Topic, given(c.payload(m)), m.Key, given(c.headers(ctx, m.Headers)), given(m.Destination),
		given(c.instant("DeliverAt", m.DeliverAt)), given(c.instant("ExpiresAt", m.ExpiresAt)),
	}, c.refused
}

func given(text string) *string {
	if text == "" {
		return nil
	}
	return &text
}

// checks holds the first refusal.
type checks struct{ refused error }

func (c *checks) refuseIf(isBad bool, code, format string, args ...any) {
	if isBad && c.refused == nil {
		c.refused = &EnqueueError{code, fmt.Sprintf(format, args...)}
	}
}

func (c *checks) text(code, text string, most int) {
	length := len(text)
	if length > most {
		length = len(utf16.Encode([]rune(text))) // As SQL Server counts.
	}
	c.refuseIf(length > most, code, "the %s has %d characters, expected at most %d", code, length, most)
	c.refuseIf(strings.ContainsRune(text, 0), code, "the %s holds a NUL, which no database stores", code)
	c.refuseIf(!utf8.ValidString(text), code, "the %s is %.100q, expected valid UTF-8", code, text)
}

func (c *checks) payload(m Message) string {
	isValue, isText := m.Payload != nil, m.JSON != nil
	c.refuseIf(isValue == isText, "payload", "Payload is set: %v, JSON is set: %v, expected exactly one", isValue, isText)
	text, err := string(m.JSON), json.Unmarshal(m.JSON, new(json.RawMessage))
	if isValue {
		text, err = encode(m.Payload)
	}
	c.refuseIf(err != nil, "payload", "the payload is not JSON: %v", err)
	c.text("payload", text, math.MaxInt)
	return text
}

func encode(value any) (string, error) {
	var text bytes.Buffer
	encoder := json.NewEncoder(&text)
	encoder.SetEscapeHTML(false)
	err := encoder.Encode(value)
	return strings.TrimSuffix(text.String(), "\n"), err
}

func (c *checks) headers(ctx context.Context, own map[string]string) string {
	headers := map[string]string{"traceparent": Traceparent(ctx)}
	for name, value := range own {
		c.text("headers", name, math.MaxInt)
		c.text("headers", value, math.MaxInt)
		if strings.EqualFold(name, "traceparent") {
			headers["traceparent"] = ""
		}
	}
	if headers["traceparent"] == "" {
		delete(headers, "traceparent")
	}
	maps.Copy(headers, own)
	if len(headers) == 0 {
		return ""
	}
	text, err := encode(headers)
	c.refuseIf(err != nil, "headers", "the headers are not JSON: %v", err)
	return text
}

func (c *checks) instant(field string, at time.Time) string {
	if at.IsZero() {
		return ""
	}
	year := at.UTC().Year()
	c.refuseIf(year < 1 || year > 9999, "time", "%s is in the year %d, expected one from 1 to 9999", field, year)
	return at.UTC().Format("2006-01-02T15:04:05.000Z")
}

var uuid = regexp.MustCompile(`(?i)^[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}$`)

var last struct {
	sync.Mutex
	id [16]byte
}

// newID returns a UUID of version 7 (RFC 9562), which is larger than the ones before it in this process.
func newID() string {
	var id [16]byte
	binary.BigEndian.PutUint64(id[:], uint64(time.Now().UnixMilli())<<16)
	if _, err := rand.Read(id[6:]); err != nil {
		panic(fmt.Sprintf("svcclient: the system has no random bytes: %v", err))
	}
	id[6], id[8] = id[6]&0x0f|0x70, id[8]&0x3f|0x80
	last.Lock()
	defer last.Unlock()
	if bytes.Compare(id[:], last.id[:]) <= 0 {
		id = last.id
		binary.BigEndian.PutUint64(id[8:], binary.BigEndian.Uint64(id[8:])+1)
	}
	last.id = id
	return fmt.Sprintf("%x-%x-%x-%x-%x", id[:4], id[4:6], id[6:8], id[8:10], id[10:])
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
