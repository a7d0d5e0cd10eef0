package kubeapi

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"time"
)

func names(objects []Object) string {
	var all []string
	for _, object := range objects {
		all = append(all, object.Metadata.Name)
	}
	return strings.Join(all, ",")
}

// After a broken stream, the watch must also drop objects whose DELETED event it missed.
func TestWatchListsAgainAfterBrokenStream(t *testing.T) {
	var lists atomic.Int32
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Query().Get("watch") == "" {
			if lists.Add(1) == 1 {
				fmt.Fprint(w, `{"metadata":{"resourceVersion":"5"},"items":[{"metadata":{"name":"old"}}]}`)
			} else {
				fmt.Fprint(w, `{"metadata":{"resourceVersion":"9"},"items":[]}`)
			}
			return
		}
		if r.URL.Query().Get("resourceVersion") == "5" {
			fmt.Fprintln(w, `{"type":"ADDED","object":{"metadata":{"name":"new"}}}`)
			fmt.Fprintln(w, `{"type":"DELETED","object":{"metadata":{"name":"old"}}}`)
			return // Ends the stream.
		}
		w.(http.Flusher).Flush()
		<-r.Context().Done()
	}))
	defer server.Close()
	ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
	defer cancel()
	var seen []string
	done := make(chan struct{})
	go func() {
		defer close(done)
		New(server.URL, "", "").Watch(ctx, Query{Path: "/things"}, func(objects []Object) {
			seen = append(seen, names(objects))
			if lists.Load() == 2 {
				cancel()
			}
		})
	}()
	<-done
	if len(seen) != 4 || seen[0] != "old" || seen[2] != "new" || seen[3] != "" {
		t.Errorf("%q", seen)
	}
}

func TestApplyIsServerSideAndErrorContainsResponse(t *testing.T) {
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Method != http.MethodPatch || r.Header.Get("Content-Type") != "application/apply-patch+yaml" || r.URL.Query().Get("force") != "true" {
			t.Errorf("%s %s %v", r.Method, r.URL, r.Header)
		}
		http.Error(w, "the reason", http.StatusForbidden)
	}))
	defer server.Close()
	err := New(server.URL, "", "").Apply(context.Background(), "/x", []byte("{}"))
	var status *StatusError
	if !errors.As(err, &status) || status.Code != http.StatusForbidden || status.Message != "the reason" {
		t.Errorf("%v", err)
	}
}
