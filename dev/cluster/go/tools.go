//go:build tools

// Package tools pins the programs that the cluster's build compiles as they are.
package tools

import (
	_ "helm.sh/helm/v4/cmd/helm"
	_ "sigs.k8s.io/kwok/cmd/kwok"
)
