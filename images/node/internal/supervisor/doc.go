// Package supervisor runs a graph of processes: it starts each when what it needs is ready, restarts what dies, gives up on
// what keeps dying, and stops all in a given order. It knows nothing of Kubernetes.
//
//	Unit        what to run, what it needs, how to tell that it is ready
//	Supervisor  one goroutine per unit walks: waiting → starting → ready → (died → starting …) → stopped
//	Reaper      the only caller of wait(2): PID 1 also inherits strangers' orphans
package supervisor
