//go:build kubernetes1.33

package main

import (
	"github.com/spf13/cobra"
	kubelet "k8s.io/kubernetes/cmd/kubelet/app"
)

// newKubeletCommand passes no context: before 1.34, the kubelet creates its own.
func newKubeletCommand() *cobra.Command { return kubelet.NewKubeletCommand() }
