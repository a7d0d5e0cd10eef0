// Package applet contains the built-in applets of the node and selects the applet to run.
// It imports no Kubernetes component, so that holdfast-init, which contains only these applets, is a small binary.
package applet

import (
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

// Exit codes. The holdfast command on the host reads them.
const (
	ExitOK           = 0
	ExitFailed       = 1
	ExitUsage        = 2
	ExitManualAction = 3
)

// Func runs an applet; args[0] is its name.
type Func func(args []string) int

// Builtin returns the applets of holdfast itself.
func Builtin() map[string]Func {
	return map[string]Func{"init": runInit, "health": runHealth, "wait": runWait, "version": runVersion}
}

// Dispatch runs the applet that the program name selects, or else the first argument. It returns the exit code.
func Dispatch(applets map[string]Func, args []string) int {
	if run, found := applets[filepath.Base(args[0])]; found {
		return run(append([]string{filepath.Base(args[0])}, args[1:]...))
	}
	if len(args) > 1 {
		if run, found := applets[args[1]]; found {
			return run(args[1:])
		}
	}
	names := slices.Sorted(maps.Keys(applets))
	fmt.Fprintf(os.Stderr, "usage: %s APPLET [ARGUMENT...]\napplets: %s\n", filepath.Base(args[0]), strings.Join(names, " "))
	return ExitUsage
}
