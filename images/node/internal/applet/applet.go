// Package applet holds the node's own commands and the dispatch between applets. It imports no Kubernetes component, so that
// the supervisor and the health check exist as a small binary besides being part of the large one.
package applet

import (
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

// Exit codes, shared with the host side of holdfast.
const (
	ExitDone        = 0
	ExitFailed      = 1
	ExitUsage       = 2
	ExitNeedsPerson = 3
)

// Func runs an applet; args[0] is its name.
type Func func(args []string) int

// Own returns holdfast's applets.
func Own() map[string]Func {
	return map[string]Func{"init": runInit, "health": runHealth, "wait": runWait, "version": runVersion}
}

// Dispatch picks an applet by the name of the program, else by its first argument, and runs it.
func Dispatch(all map[string]Func, args []string) int {
	if run, found := all[filepath.Base(args[0])]; found {
		return run(append([]string{filepath.Base(args[0])}, args[1:]...))
	}
	if len(args) > 1 {
		if run, found := all[args[1]]; found {
			return run(args[1:])
		}
	}
	names := slices.Sorted(maps.Keys(all))
	fmt.Fprintf(os.Stderr, "usage: %s APPLET [ARGUMENT...]\napplets: %s\n", filepath.Base(args[0]), strings.Join(names, " "))
	return ExitUsage
}
