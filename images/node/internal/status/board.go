// Package status keeps what is known about the node's components and tells it to whoever asks over a unix socket.
// It decides what "ready" means; it observes nothing itself.
package status

import (
	"slices"
	"sync"
	"time"
)

// Entry is one component's state, and one line of the stream.
type Entry struct {
	Component string  `json:"component"`
	State     string  `json:"state"`
	Seconds   float64 `json:"seconds"` // since the node's start
	Detail    string  `json:"detail,omitempty"`
}

// StateReady is the one state that counts.
const StateReady = "ready"

// Components that no process stands for: they are observed through the API.
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

// Levels says what must be ready for each level that `wait` takes.
var Levels = map[string][]string{
	"api":   {APIServer},
	"node":  {APIServer, Node},
	"ready": {APIServer, Node, DNS, Provisioner, StorageClass, ServiceAccount},
}

// Board is the current state of everything, in the order in which it first appeared.
type Board struct {
	start time.Time
	now   func() time.Time

	mu        sync.Mutex
	entries   []Entry
	listeners map[chan Entry]struct{}
}

// NewBoard counts seconds from start.
func NewBoard(start time.Time) *Board {
	return &Board{start: start, now: time.Now, listeners: map[chan Entry]struct{}{}}
}

// Set records a state and tells the listeners; it returns the entry, and whether anything changed.
func (b *Board) Set(component, state, detail string) (Entry, bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	seconds := float64(b.now().Sub(b.start).Milliseconds()) / 1000
	entry := Entry{Component: component, State: state, Seconds: seconds, Detail: detail}
	at := slices.IndexFunc(b.entries, func(e Entry) bool { return e.Component == component })
	if at < 0 {
		b.entries = append(b.entries, entry)
	} else {
		if old := b.entries[at]; old.State == state && old.Detail == detail {
			return old, false
		}
		b.entries[at] = entry
	}
	for listener := range b.listeners {
		select {
		case listener <- entry:
		default: // It reads too slowly: it is dropped and must connect again.
			delete(b.listeners, listener)
			close(listener)
		}
	}
	return entry, true
}

// Snapshot returns the entries as they are now.
func (b *Board) Snapshot() []Entry {
	b.mu.Lock()
	defer b.mu.Unlock()
	return slices.Clone(b.entries)
}

// Follow returns the entries as they are now and a channel of all later ones; no change falls between the two.
func (b *Board) Follow() ([]Entry, <-chan Entry, func()) {
	b.mu.Lock()
	defer b.mu.Unlock()
	listener := make(chan Entry, 256)
	b.listeners[listener] = struct{}{}
	return slices.Clone(b.entries), listener, func() {
		b.mu.Lock()
		defer b.mu.Unlock()
		if _, there := b.listeners[listener]; there {
			delete(b.listeners, listener)
			close(listener)
		}
	}
}

// Faults returns what keeps the node from being healthy: whatever "ready" lacks, and any component that is not up at the moment.
func Faults(entries []Entry) []Entry {
	faults := Missing("ready", entries)
	for _, entry := range entries {
		if entry.State != StateReady && !slices.ContainsFunc(faults, func(e Entry) bool { return e.Component == entry.Component }) {
			faults = append(faults, entry)
		}
	}
	return faults
}

// Missing returns what the level still lacks, given a set of entries.
func Missing(level string, entries []Entry) []Entry {
	var missing []Entry
	for _, component := range Levels[level] {
		at := slices.IndexFunc(entries, func(e Entry) bool { return e.Component == component })
		switch {
		case at < 0:
			missing = append(missing, Entry{Component: component, State: "unknown"})
		case entries[at].State != StateReady:
			missing = append(missing, entries[at])
		}
	}
	return missing
}
