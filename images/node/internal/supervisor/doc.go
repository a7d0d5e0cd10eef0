// Package supervisor runs a graph of processes and tasks. It starts each when its needs are ready, and stops all in a given
// order. It restarts processes that exit, and fails if a process exits too often. It does not depend on Kubernetes.
//
//	Unit        a process or task, its needs and its readiness check
//	Supervisor  runs one goroutine per unit: waiting → starting → ready → (died → starting …) → stopped
//	Reaper      the only caller of wait(2), because PID 1 also has to reap orphans
package supervisor
