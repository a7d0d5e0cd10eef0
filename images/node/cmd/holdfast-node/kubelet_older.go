//go:build kubernetes1.33

package main

import (
	"github.com/spf13/cobra"
	kubelet "k8s.io/kubernetes/cmd/kubelet/app"
)

// Before 1.34 the kubelet makes its own context.
func newKubeletCommand() *cobra.Command { return kubelet.NewKubeletCommand() }
