// CoreDNS with only the plugins that a test cluster's Corefile names.
package main

import (
	"github.com/coredns/coredns/core/dnsserver"
	"github.com/coredns/coredns/coremain"
	_ "github.com/coredns/coredns/plugin/bind"
	_ "github.com/coredns/coredns/plugin/errors"
	_ "github.com/coredns/coredns/plugin/health"
	_ "github.com/coredns/coredns/plugin/kubernetes"
	_ "github.com/coredns/coredns/plugin/log"
	_ "github.com/coredns/coredns/plugin/ready"
	_ "github.com/coredns/coredns/plugin/template"
)

// The order in which plugins see a query; template answers what is left, where CoreDNS' own list would let it answer first.
func init() {
	dnsserver.Directives = []string{"bind", "health", "ready", "errors", "log", "kubernetes", "template"}
}

func main() { coremain.Run() }
