// CoreDNS with the plugins that a cluster's own names need, and no others: the whole set takes ten times as long to build.
package main

import (
	_ "github.com/coredns/coredns/plugin/errors"
	_ "github.com/coredns/coredns/plugin/kubernetes"

	"github.com/coredns/coredns/coremain"
)

func main() { coremain.Run() }
