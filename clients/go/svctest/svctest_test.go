package svctest

import (
	"net/http"
	"strings"
	"testing"
	"time"
)

func TestReceiver(t *testing.T) {
	answer := http.StatusServiceUnavailable
	r := NewReceiver(t, func(Delivery) int { return answer })
	for n, id := range []string{"a", "a", "b"} {
		request, err := http.NewRequest(http.MethodPost, r.URL+"/hooks", strings.NewReader(id))
		if err != nil {
			t.Fatal(err)
		}
		request.Header.Set("X-Message-Id", id)
		got, err := http.DefaultClient.Do(request)
		if err != nil {
			t.Fatal(err)
		}
		got.Body.Close()
		if got.StatusCode != answer {
			t.Errorf("delivery %d was answered with %d, expected %d", n, got.StatusCode, answer)
		}
		answer = http.StatusNoContent
	}
	deliveries := r.Deliveries()
	if len(deliveries) != 3 || deliveries[0].IsRepeated || !deliveries[1].IsRepeated || deliveries[2].IsRepeated {
		t.Errorf("found %v, expected three, of which the second is repeated", deliveries)
	}
	messages := r.Wait(t, 2, time.Second)
	if len(messages) != 2 || messages[0].MessageID != "a" || string(messages[1].Body) != "b" || messages[1].Path != "/hooks" {
		t.Errorf("found %v, expected a and b", messages)
	}
}
