// Package status stores the states of the node's components, serves them on a Unix socket, and defines what "ready" means.
// It does not check components itself.
package status

import (
	"slices"
	"sync"
	"time"
)

// Entry is the state of one component, and one line of the stream.
type Entry struct {
	Component string  `json:"component"`
	State     string  `json:"state"`
	Seconds   float64 `json:"seconds"` // since the node's start
	Detail    string  `json:"detail,omitempty"`
}

// StateReady is the only state that counts as ready.
const StateReady = "ready"

// Components without a process of the supervisor; their state comes from the API server.
const (
	Node           = "node"
	DNS            = "coredns"
	StorageClass   = "storage-class"
	ServiceAccount = "service-account"
)

// Processes of the supervisor that must be ready.
const (
	APIServer   = "kube-apiserver"
	Provisioner = "storage-provisioner"
)

// Levels maps each level of `wait --for` to the components that must be ready.
var Levels = map[string][]string{
	"api":   {APIServer},
	"node":  {APIServer, Node},
	"ready": {APIServer, Node, DNS, Provisioner, StorageClass, ServiceAccount},
}

// Tracker stores the current entries, in the order in which the components first reported a state.
type Tracker struct {
	start time.Time
	now   func() time.Time

	mu          sync.Mutex
	entries     []Entry
	subscribers map[chan Entry]struct{}
}

// NewTracker returns an empty tracker. Entry.Seconds counts from start.
func NewTracker(start time.Time) *Tracker {
	return &Tracker{start: start, now: time.Now, subscribers: map[chan Entry]struct{}{}}
}

// Set stores a state and sends it to the subscribers. It returns the entry and reports whether it changed.
func (t *Tracker) Set(component, state, detail string) (Entry, bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	seconds := float64(t.now().Sub(t.start).Milliseconds()) / 1000
	entry := Entry{Component: component, State: state, Seconds: seconds, Detail: detail}
	index := slices.IndexFunc(t.entries, func(e Entry) bool { return e.Component == component })
	if index < 0 {
		t.entries = append(t.entries, entry)
	} else {
		if old := t.entries[index]; old.State == state && old.Detail == detail {
			return old, false
		}
		t.entries[index] = entry
	}
	for subscriber := range t.subscribers {
		select {
		case subscriber <- entry:
		default: // The subscriber is too slow: close its channel, and it has to reconnect.
			delete(t.subscribers, subscriber)
			close(subscriber)
		}
	}
	return entry, true
}

// Snapshot returns a copy of the current entries.
func (t *Tracker) Snapshot() []Entry {
	t.mu.Lock()
	defer t.mu.Unlock()
	return slices.Clone(t.entries)
}

// Subscribe returns the current entries, a channel of all later ones, and a function that ends the subscription. No change
// is lost between the entries and the channel.
func (t *Tracker) Subscribe() ([]Entry, <-chan Entry, func()) {
	t.mu.Lock()
	defer t.mu.Unlock()
	subscriber := make(chan Entry, 256)
	t.subscribers[subscriber] = struct{}{}
	return slices.Clone(t.entries), subscriber, func() {
		t.mu.Lock()
		defer t.mu.Unlock()
		if _, ok := t.subscribers[subscriber]; ok {
			delete(t.subscribers, subscriber)
			close(subscriber)
		}
	}
}

// Unhealthy returns the entries that make the node unhealthy: those that level "ready" misses, and all others that are not ready.
func Unhealthy(entries []Entry) []Entry {
	unhealthy := Missing("ready", entries)
	for _, entry := range entries {
		if entry.State != StateReady && !slices.ContainsFunc(unhealthy, func(e Entry) bool { return e.Component == entry.Component }) {
			unhealthy = append(unhealthy, entry)
		}
	}
	return unhealthy
}

// Missing returns the entries of the level's components that are not ready.
func Missing(level string, entries []Entry) []Entry {
	var missing []Entry
	for _, component := range Levels[level] {
		index := slices.IndexFunc(entries, func(e Entry) bool { return e.Component == component })
		switch {
		case index < 0:
			missing = append(missing, Entry{Component: component, State: "unknown"})
		case entries[index].State != StateReady:
			missing = append(missing, entries[index])
		}
	}
	return missing
}
