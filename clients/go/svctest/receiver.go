package svctest

import (
	"io"
	"net/http"
	"net/http/httptest"
	"slices"
	"sync"
	"testing"
	"time"
)

// Delivery is a request that a [Receiver] got.
type Delivery struct {
	// MessageID is x-message-id.
	MessageID string
	// IsRepeated says that the message had come before.
	IsRepeated bool
	Method     string
	Path       string
	Header     http.Header
	Body       []byte
}

// Receiver is an HTTP server that records deliveries.
type Receiver struct {
	// URL is the address for baseUrl of a destination.
	URL string

	status     func(Delivery) int
	mu         sync.Mutex
	deliveries []Delivery
}

// NewReceiver starts a receiver, which the end of the test stops. status chooses the answer to a delivery; if it is
// nil, each is accepted.
func NewReceiver(t testing.TB, status func(Delivery) int) *Receiver {
	t.Helper()
	r := &Receiver{status: status}
	server := httptest.NewServer(r)
	t.Cleanup(server.Close)
	r.URL = server.URL
	return r
}

// ServeHTTP records a delivery.
func (r *Receiver) ServeHTTP(w http.ResponseWriter, request *http.Request) {
	body, err := io.ReadAll(request.Body)
	if err != nil {
		return // The sender has hung up, and sends it again.
	}
	d := Delivery{
		MessageID: request.Header.Get("X-Message-Id"),
		Method:    request.Method,
		Path:      request.URL.Path,
		Header:    request.Header.Clone(),
		Body:      body,
	}
	r.mu.Lock()
	d.IsRepeated = slices.ContainsFunc(r.deliveries, func(other Delivery) bool { return other.MessageID == d.MessageID })
	r.deliveries = append(r.deliveries, d)
	r.mu.Unlock()
	status := http.StatusNoContent
	if r.status != nil {
		status = r.status(d)
	}
	w.WriteHeader(status)
}

// Deliveries returns all deliveries in the order in which they came.
func (r *Receiver) Deliveries() []Delivery {
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.Clone(r.deliveries)
}

// Messages returns the first delivery of each message, in the order in which they came.
func (r *Receiver) Messages() []Delivery {
	return slices.DeleteFunc(r.Deliveries(), func(d Delivery) bool { return d.IsRepeated })
}

// Wait waits for a number of different messages, and returns them as [Receiver.Messages] does. It ends the test if they
// do not come in time.
func (r *Receiver) Wait(t testing.TB, messages int, timeout time.Duration) []Delivery {
	t.Helper()
	for deadline := time.Now().Add(timeout); ; time.Sleep(10 * time.Millisecond) {
		got := r.Messages()
		if len(got) >= messages {
			return got
		}
		if time.Now().After(deadline) {
			t.Fatalf("the receiver has %d messages after %v, expected %d", len(got), timeout, messages)
		}
	}
}
