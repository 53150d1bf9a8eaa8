//go:build tools

// Package kueue pins Kueue's manager, which the cluster's build compiles.
package kueue

import (
	_ "sigs.k8s.io/kueue/cmd/kueue"
)
